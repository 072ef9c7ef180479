"""Transformer layers of models trained from scratch (Vaswani et al., NeurIPS 2017, arXiv 1706.03762)."""

from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_modules.networks.dropout import Dropout
from lightning_modules.networks.dropout_attention import attention

Norm = Literal["pre", "post"]
Activation = Literal["relu", "gelu", "gelu_tanh"]

# gelu_tanh: the approximation of the first BERT, which PreSumm uses too
_ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": partial(F.gelu, approximate="tanh")}


class KeyValues(NamedTuple):
    """Projected keys and values of attention, split by head."""

    keys: Tensor  # [..., N, S, D / N]
    values: Tensor  # [..., N, S, D / N]


def sinusoidal(length: int, size: int, device: torch.device | None = None, start: int = 0) -> Tensor:
    """Return the sinusoidal embeddings (Vaswani et al. 2017) of T = `length` positions from `start` on, [T, D].

        PE[p, 2i] = sin(p / 10000^(2i/D)),   PE[p, 2i + 1] = cos(p / 10000^(2i/D)),

    D = `size` has to be even.
    """
    if size % 2:
        raise ValueError(f"sinusoidal positions need an even size, got {size}")
    # at least float32: bfloat16, the default dtype in bf16-true precision, would round positions beyond 256
    dtype = torch.promote_types(torch.get_default_dtype(), torch.float32)
    steps = torch.arange(0, size, 2, dtype=dtype, device=device)                             # [D / 2]
    positions = torch.arange(start, start + length, device=device)                           # [T]
    angles = positions.unsqueeze(1) * 10_000.0 ** (-steps / size)                            # [T, D / 2]
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)                          # [T, D]


def ensure_nonempty(mask: Tensor) -> Tensor:
    """Return a copy of a mask [..., T], True at the first position of all-False rows, so that softmax is defined."""
    nonempty = mask.clone()
    nonempty[..., :1] |= ~mask.any(-1, keepdim=True)
    return nonempty


class MultiHeadAttention(nn.Module):
    """Multi-head attention, softmax(Q K^T / sqrt(D / N) + bias) V for each of N heads (Vaswani et al. 2017).

    D, the width of queries and output, is a multiple of N, else a `ValueError`. Dropout is on the attention weights.
    """

    def __init__(self, size: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if size % heads:
            raise ValueError(f"{heads} heads do not divide a size of {size}")
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(size, size)
        self.output = nn.Linear(size, size)
        self.value = nn.Linear(size, size)
        # no bias: a bias of the keys adds a constant to all scores of a query, which does not change the softmax
        self.key = nn.Linear(size, size, bias=False)
        for linear in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(linear.weight)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def split(self, x: Tensor) -> Tensor:
        """Split vectors into N heads: [..., T, D] -> [..., N, T, D / N]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def project(self, memory: Tensor) -> KeyValues:
        """Return the keys and values of memory [..., S, D]; decoding computes them once."""
        return KeyValues(self.split(self.key(memory)), self.split(self.value(memory)))

    def forward(
        self, x: Tensor, memory: Tensor | KeyValues, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Attend from x [B, T, D] to memory [B, S, D], or its keys and values from `project` -> [B, T, D].

        Args:
            mask: True where attention is allowed (bool), or a bias added to the scores (float);
                [B, N or 1, T or 1, S]. Each query must be allowed at least one position.
            causal: position t attends to positions up to t; not together with a mask.
        """
        key_values = memory if isinstance(memory, KeyValues) else self.project(memory)
        dropout = self.dropout if self.training else 0.0
        query = self.split(self.query(x))                                                    # [B, N, T, D / N]
        mixed = attention(query, *key_values, mask, dropout, causal)                         # [B, N, T, D / N]
        return self.output(mixed.transpose(-3, -2).flatten(-2))

    def weights(self, x: Tensor, memory: Tensor | KeyValues, mask: Tensor | None = None) -> Tensor:
        """Return the attention weights without dropout, [B, N, T, S]; arguments as in `forward`."""
        keys = (memory if isinstance(memory, KeyValues) else self.project(memory)).keys          # [B, N, S, D / N]
        scores = self.split(self.query(x) * keys.shape[-1] ** -0.5) @ keys.transpose(-1, -2)     # [B, N, T, S]
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
        return scores.softmax(-1)


class FeedForward(nn.Module):
    """Feed-forward network W_2 dropout(act(W_1 x + b_1)) + b_2 of width `hidden_size` (Vaswani et al., section 3.3)."""

    def __init__(self, size: int, hidden_size: int, dropout: float = 0.0, activation: Activation = "relu") -> None:
        super().__init__()
        self.inner = nn.Linear(size, hidden_size)
        self.outer = nn.Linear(hidden_size, size)
        self.activation = _ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the network to each vector, [..., D] -> [..., D]."""
        return self.outer(self.dropout(self.activation(self.inner(x))))


class Residual(nn.Module):
    """Residual connection: x + f(LayerNorm(x)) (`pre`), or LayerNorm(x + f(x)) (`post`, as in Vaswani et al. 2017).

    Dropout is on the output of f. A stack of `pre` layers needs a final normalization.
    """

    def __init__(self, size: int, dropout: float, norm: Norm) -> None:
        super().__init__()
        if norm not in ("pre", "post"):
            raise ValueError(f"norm must be pre or post, got {norm!r}")
        self.norm = nn.LayerNorm(size)
        self.dropout = Dropout(dropout)
        self.pre = norm == "pre"

    def forward(self, x: Tensor, function) -> Tensor:
        """Return x with the residual branch f = `function` added, normalized as `norm` says: [..., D] -> [..., D]."""
        if self.pre:
            return x + self.dropout(function(self.norm(x)))
        return self.norm(x + self.dropout(function(x)))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward network, each with a residual connection.

    Vectors have D = `size` elements, attention N `heads`, and the feed-forward network the width `feed_forward` inside;
    `norm`: see `Residual`. Dropout is on attention weights, inside the feed-forward network, and on both outputs.
    """

    def __init__(
        self,
        size: int,
        heads: int,
        feed_forward: int,
        dropout: float = 0.1,
        norm: Norm = "pre",
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(size, heads, dropout)
        self.feed_forward = FeedForward(size, feed_forward, dropout, activation)
        self.around_attention = Residual(size, dropout, norm)
        self.around_feed_forward = Residual(size, dropout, norm)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Apply the layer, [B, T, D] -> [B, T, D]; mask as in `MultiHeadAttention.forward`."""
        x = self.around_attention(x, lambda y: self.attention(y, y, mask))
        return self.around_feed_forward(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the encoder output, and feed-forward network.

    `cross_attention` replaces multi-head cross-attention; it is called with x [B, T, D], memory and its mask. Other
    arguments are as of `EncoderLayer`.
    """

    def __init__(
        self,
        size: int,
        heads: int,
        feed_forward: int,
        dropout: float = 0.1,
        norm: Norm = "pre",
        activation: Activation = "relu",
        cross_attention: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(size, heads, dropout)
        self.cross_attention = cross_attention or MultiHeadAttention(size, heads, dropout)
        self.feed_forward = FeedForward(size, feed_forward, dropout, activation)
        self.around_attention = Residual(size, dropout, norm)
        self.around_cross = Residual(size, dropout, norm)
        self.around_feed_forward = Residual(size, dropout, norm)

    def _cross_and_feed_forward(self, x: Tensor, memory: Tensor | KeyValues, mask: Tensor | None) -> Tensor:
        """Run what follows self-attention, [B, T, D] -> [B, T, D]."""
        x = self.around_cross(x, lambda y: self.cross_attention(y, memory, mask))
        return self.around_feed_forward(x, self.feed_forward)

    def forward(self, x: Tensor, memory: Tensor | KeyValues, memory_mask: Tensor | None = None) -> Tensor:
        """Run all target positions of x in parallel: [B, T, D], or [B, K, T, D] for K targets of each document.

        `memory`, [B, S, D] or keys and values, is not repeated for K; its mask, True at tokens, is [B, N or 1, 1, S].
        """
        targets = x.flatten(0, -3)                                                           # [B K, T, D]
        targets = self.around_attention(targets, lambda y: self.attention(y, y, causal=True))
        queries = targets.reshape(len(x), -1, x.shape[-1])                                   # [B, K T, D]
        return self._cross_and_feed_forward(queries, memory, memory_mask).view(x.shape)

    def step(
        self, x: Tensor, past: KeyValues, memory: KeyValues, memory_mask: Tensor | None = None
    ) -> tuple[Tensor, KeyValues]:
        """Run one position of K hypotheses of each of B documents, x [B, K, D], after t positions.

        `past` are keys and values of those positions, [B, K, N, t, D / N], `memory` of the documents, [B, N, S, D / N],
        with mask [B, N or 1, 1, S]. Returns the output [B, K, D], and keys and values of t + 1 positions.
        """
        extended: list[KeyValues] = []  # filled by `attend`, because a residual branch returns only its output

        def attend(y: Tensor) -> Tensor:
            current = self.attention.project(y.unsqueeze(-2))                                # [B, K, N, 1, D / N]
            # previous keys and values take the dtype of the new ones: half precision under autocast
            keys, values = (torch.cat([old.to(new), new], -2) for old, new in zip(past, current))
            extended.append(KeyValues(keys, values))                                         # [B, K, N, t + 1, D / N]
            all_positions = KeyValues(keys.flatten(0, 1), values.flatten(0, 1))              # [B K, N, t + 1, D / N]
            return self.attention(y.flatten(0, 1).unsqueeze(1), all_positions).view_as(y)    # [B, K, D]

        return self._cross_and_feed_forward(self.around_attention(x, attend), memory, memory_mask), extended[0]
