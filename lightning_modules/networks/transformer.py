"""The Transformer brick of all models that train one from scratch: Vaswani et al., NeurIPS 2017 (arXiv 1706.03762)."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Norm = Literal["pre", "post"]
Activation = Literal["relu", "gelu"]

_ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu}


class KeyValues(NamedTuple):
    """What attention looks at, projected and split by head."""

    keys: Tensor  # [..., N, S, D / N]
    values: Tensor  # the same


def sinusoidal(length: int, size: int, device: torch.device | None = None, start: int = 0) -> Tensor:
    """Positions as sines and cosines (section 3.5): PE[p, 2i] = sin(p / 10000^(2i/D)), PE[p, 2i + 1] = cos(the same).

    Args:
        length: T, positions.
        size: D, even.
        device: of the result.
        start: the first position.

    Returns:
        [T, D].

    Raises:
        ValueError: if D is odd.
    """
    if size % 2:
        raise ValueError(f"sinusoidal positions need an even size, got {size}")
    steps = torch.arange(0, size, 2, device=device)                                          # [D / 2]
    places = torch.arange(start, start + length, device=device)                              # [T]
    angles = places.unsqueeze(1) * 10_000.0 ** (-steps / size)                               # [T, D / 2]
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)                          # [T, D]


def never_empty(mask: Tensor) -> Tensor:
    """A mask in whose rows something is True: the first place where nothing is, so that no softmax is empty.

    Args:
        mask: [..., T].

    Returns:
        [..., T], another tensor.
    """
    seen = mask.clone()
    seen[..., :1] |= ~mask.any(-1, keepdim=True)
    return seen


class MultiHeadAttention(nn.Module):
    """softmax(Q K^T / sqrt(D / N) + bias) V for each of N heads (section 3.2).

    Args:
        size: D of the queries and of the output.
        heads: N.
        dropout: on the attention weights.
        memory_size: width of what is looked at; D if not given.

    Raises:
        ValueError: if the heads do not divide D.
    """

    def __init__(self, size: int, heads: int, dropout: float = 0.0, memory_size: int | None = None) -> None:
        super().__init__()
        if size % heads:
            raise ValueError(f"{heads} heads do not divide a size of {size}")
        self.heads, self.dropout = heads, dropout
        self.query, self.output = nn.Linear(size, size), nn.Linear(size, size)
        self.value = nn.Linear(memory_size or size, size)
        # a bias of the keys adds the same to all scores of a query, which softmax does not see
        self.key = nn.Linear(memory_size or size, size, bias=False)
        for linear in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(linear.weight)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def split(self, x: Tensor) -> Tensor:
        """[..., T, D] -> [..., N, T, D / N]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def project(self, memory: Tensor) -> KeyValues:
        """Keys and values of [..., S, D']: what decoding computes once and keeps."""
        return KeyValues(self.split(self.key(memory)), self.split(self.value(memory)))

    def forward(
        self, x: Tensor, memory: Tensor | KeyValues, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Attention of x to memory.

        Args:
            x: [B, T, D].
            memory: [B, S, D'], or what `project` made of it.
            mask: what may be seen (bool), or what is added to the scores (float); [B, N or 1, T or 1, S].
                Every query must see something.
            causal: position t sees positions up to t; not together with a mask.

        Returns:
            [B, T, D].
        """
        past = memory if isinstance(memory, KeyValues) else self.project(memory)
        dropout = self.dropout if self.training else 0.0
        query = self.split(self.query(x))                                                    # [B, N, T, D / N]
        mixed = F.scaled_dot_product_attention(query, *past, mask, dropout, causal)          # [B, N, T, D / N]
        return self.output(mixed.transpose(-3, -2).flatten(-2))

    def weights(self, x: Tensor, memory: Tensor | KeyValues, mask: Tensor | None = None) -> Tensor:
        """The attention weights alone: [B, N, T, S]."""
        past = memory if isinstance(memory, KeyValues) else self.project(memory)
        scores = self.split(self.query(x) * past.keys.shape[-1] ** -0.5) @ past.keys.transpose(-1, -2)
        if mask is not None and mask.dtype == torch.bool:
            mask = scores.new_zeros(mask.shape).masked_fill_(~mask, float("-inf"))
            scores += mask  # in place: its gradient is that of the sum
        elif mask is not None:
            scores = scores + mask
        return scores.softmax(-1)


class FeedForward(nn.Module):
    """W_2 dropout(act(W_1 x)) (section 3.3).

    Args:
        size: D.
        hidden_size: of the layer between.
        dropout: on that layer.
        activation: act.
    """

    def __init__(self, size: int, hidden_size: int, dropout: float = 0.0, activation: Activation = "relu") -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(size, hidden_size), nn.Linear(hidden_size, size)
        self.activation, self.dropout = _ACTIVATIONS[activation], nn.Dropout(dropout)
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        return self.outer(self.dropout(self.activation(self.inner(x))))


class Residual(nn.Module):
    """x + f(LayerNorm(x)) (`pre`), or LayerNorm(x + f(x)) as printed (`post`), with dropout on what f gives.

    Args:
        size: D.
        dropout: on f's output.
        norm: where the normalisation stands. A stack of `pre` layers needs one more at its end.
    """

    def __init__(self, size: int, dropout: float, norm: Norm) -> None:
        super().__init__()
        if norm not in ("pre", "post"):
            raise ValueError(f"norm must be pre or post, got {norm!r}")
        self.norm, self.dropout, self.pre = nn.LayerNorm(size), nn.Dropout(dropout), norm == "pre"

    def forward(self, x: Tensor, function) -> Tensor:
        """[..., D] -> [..., D]."""
        if self.pre:
            return x + self.dropout(function(self.norm(x)))
        return self.norm(x + self.dropout(function(x)))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward network, each with its residual.

    Args:
        size: D.
        heads: N.
        feed_forward: width inside the feed-forward network.
        dropout: on attention weights, inside the feed-forward network, and on both outputs.
        norm: `pre` or `post`.
        activation: of the feed-forward network.
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
        self.around_attention, self.around_feed_forward = (Residual(size, dropout, norm) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, T, D] -> [B, T, D]; mask as in `MultiHeadAttention`."""
        x = self.around_attention(x, lambda y: self.attention(y, y, mask))
        return self.around_feed_forward(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the encoder's output, and feed-forward network.

    Args:
        size: D.
        heads: N.
        feed_forward: width inside the feed-forward network.
        dropout: as in `EncoderLayer`.
        norm: `pre` or `post`.
        activation: of the feed-forward network.
        memory_size: width of the encoder's output; D if not given.
        cross_attention: another attention to what was encoded, called with x [B, T, D], memory and its mask.
    """

    def __init__(
        self,
        size: int,
        heads: int,
        feed_forward: int,
        dropout: float = 0.1,
        norm: Norm = "pre",
        activation: Activation = "relu",
        memory_size: int | None = None,
        cross_attention: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(size, heads, dropout)
        self.cross_attention = cross_attention or MultiHeadAttention(size, heads, dropout, memory_size)
        self.feed_forward = FeedForward(size, feed_forward, dropout, activation)
        self.around_attention, self.around_cross, self.around_feed_forward = (
            Residual(size, dropout, norm) for _ in range(3)
        )

    def _rest(self, x: Tensor, memory: Tensor | KeyValues, mask: Tensor | None) -> Tensor:
        x = self.around_cross(x, lambda y: self.cross_attention(y, memory, mask))
        return self.around_feed_forward(x, self.feed_forward)

    def forward(self, x: Tensor, memory: Tensor | KeyValues, memory_mask: Tensor | None = None) -> Tensor:
        """All target positions at once.

        Args:
            x: [B, T, D]; or [B, K, T, D], K targets of each document, whose memory is not repeated.
            memory: [B, S, D'], or its keys and values.
            memory_mask: as in `MultiHeadAttention`, of one query for all: [B, N or 1, 1, S].

        Returns:
            as x.
        """
        targets = x.flatten(0, -3)                                                           # [B K, T, D]
        targets = self.around_attention(targets, lambda y: self.attention(y, y, causal=True))
        return self._rest(targets.reshape(len(x), -1, x.shape[-1]), memory, memory_mask).view(x.shape)

    def step(
        self, x: Tensor, past: KeyValues, memory: KeyValues, memory_mask: Tensor | None = None
    ) -> tuple[Tensor, KeyValues]:
        """One more position of K hypotheses of each document; the document's keys and values are not repeated.

        Args:
            x: [B, K, D].
            past: of the positions before, each [B, K, N, t, D / N], with t = 0 at first.
            memory: of the documents, each [B, N, S, D / N].
            memory_mask: [B, N or 1, 1, S].

        Returns:
            [B, K, D], and the keys and values of t + 1 positions.
        """
        kept: list[KeyValues] = []

        def attend(y: Tensor) -> Tensor:
            new = self.attention.project(y.unsqueeze(-2))                                    # [B, K, N, 1, D / N]
            # what is kept has the type of what is new: half precision under autocast
            kept.append(KeyValues(*(torch.cat([old.to(more), more], -2) for old, more in zip(past, new))))
            rows = KeyValues(*(tensor.flatten(0, 1) for tensor in kept[0]))                  # [B K, N, t + 1, D / N]
            return self.attention(y.flatten(0, 1).unsqueeze(1), rows).view_as(y)

        return self._rest(self.around_attention(x, attend), memory, memory_mask), kept[0]
