"""Attention over paragraphs with a graph (GraphSum, Li et al., ACL 2020) and without (Hierarchical Transformer, Liu and
Lapata, ACL 2019). Equations are those of the papers; each head has its own weights, and a linear layer joins the heads.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_modules.networks.dropout import Dropout
from lightning_modules.networks.transformer import FeedForward, MultiHeadAttention, Norm


class GraphBias(nn.Module):
    """Bias of attention scores by a graph: R = -(1 - G)^2 / (2 sigma^2).

    For weights G in [0, 1] and sigma = 1, R is in [-0.5, 0]: a bias, not a mask. A sigma that is not positive is a
    `ValueError`. With `learned` the logarithm of sigma is trained, so that sigma stays positive.
    """

    def __init__(self, sigma: float = 1.0, learned: bool = False) -> None:
        super().__init__()
        if not sigma > 0:
            raise ValueError(f"sigma must be positive, got {sigma}")
        log_sigma = torch.tensor(math.log(sigma))
        if learned:
            self.log_sigma = nn.Parameter(log_sigma)
        else:
            self.register_buffer("log_sigma", log_sigma, persistent=False)  # the config has it, not the checkpoint

    def forward(self, graph: Tensor) -> Tensor:
        """Return R for G of any shape."""
        return (1 - graph).square() * (-0.5 * (-2 * self.log_sigma).exp())  # exp(-2 log sigma) = 1 / sigma^2


class MultiHeadPooling(nn.Module):
    """Pooling of tokens to a vector: each head sums `value`s, weighted by a softmax of `key`s; `output` joins heads."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.key = nn.Linear(size, heads, bias=False)  # one score per head; a softmax ignores a bias
        self.value = nn.Linear(size, size)
        self.output = nn.Linear(size, size)
        for linear in (self.key, self.value, self.output):
            nn.init.xavier_uniform_(linear.weight)

    def by_head(self, x: Tensor, mask: Tensor) -> Tensor:
        """Pool n tokens [..., n, D] by N heads -> [..., N, D / N]; the mask [..., n] is True at one token at least."""
        scores = self.key(x).masked_fill(~mask.unsqueeze(-1), float("-inf"))                 # [..., n, N]
        values = self.value(x).unflatten(-1, (self.heads, -1)).transpose(-3, -2)             # [..., N, n, D / N]
        weights = scores.softmax(-2).transpose(-1, -2).unsqueeze(-2)                         # [..., N, 1, n]
        return (weights @ values).squeeze(-2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Pool tokens [..., n, D] with their mask [..., n] -> [..., D]."""
        return self.output(self.by_head(x, mask).flatten(-2))


class MeanPooling(nn.Module):
    """Mean of the tokens, the ablation of multi-head pooling."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Pool tokens [..., n, D] with their mask [..., n] -> [..., D]."""
        weights = mask.to(x.dtype) / mask.sum(-1, keepdim=True)                              # [..., n]
        return (weights.unsqueeze(-2) @ x).squeeze(-2)


class AroundFeedForward(nn.Module):
    """Residual connections and normalization around attention u and a feed-forward network f.

    `post`, as in the papers (GraphSum, Hierarchical Transformer): LayerNorm(f(u(x) + x) + x). `pre`, as in their code:
    y = x + u(LayerNorm(x)), y + f(LayerNorm(y)); a stack needs a final normalization. Dropout is in f, on u and on f.
    """

    def __init__(self, size: int, feed_forward: int, dropout: float, norm: Norm) -> None:
        super().__init__()
        self.feed_forward = FeedForward(size, feed_forward, dropout)
        self.dropout = Dropout(dropout)
        self.before = nn.LayerNorm(size) if norm == "pre" else None
        self.norm = nn.LayerNorm(size)

    def forward(self, x: Tensor, attend) -> Tensor:
        """Apply the layer, [..., D] -> [..., D]; `attend` is the function u, whose result is broadcast to x."""
        if self.before is not None:  # `pre`
            x = x + self.dropout(attend(self.before(x)))
            return x + self.dropout(self.feed_forward(self.norm(x)))
        return self.norm(x + self.dropout(self.feed_forward(x + self.dropout(attend(x)))))


class GraphEncoderLayer(nn.Module):
    """Graph-informed self-attention over paragraphs: alpha = softmax(e + R), u_i = sum_j alpha_ij (x_j W_V).

    Scores are e, weights alpha. `bias` computes R from the graph G of paragraphs; if it is None, G is not used.
    The other arguments are those of `MultiHeadAttention` and `AroundFeedForward`.
    """

    def __init__(
        self, size: int, heads: int, feed_forward: int, dropout: float, norm: Norm, bias: GraphBias | None
    ) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(size, heads, dropout)
        self.bias = bias
        self.around = AroundFeedForward(size, feed_forward, dropout, norm)

    def forward(self, x: Tensor, mask: Tensor, graph: Tensor) -> Tensor:
        """Apply the layer to paragraphs [B, L, D] -> [B, L, D], with a graph G [B, L, L].

        The mask, [B, L], is True at paragraphs, of which each document has at least one.
        """
        score_mask = mask[:, None, None]  # `MultiHeadAttention` takes a boolean mask or a bias; [B, 1, 1, L]
        if self.bias is not None:
            bias = self.bias(graph).unsqueeze(1)                                             # [B, 1, L, L]
            score_mask = bias.masked_fill(~score_mask, float("-inf"))  # -inf at padding keys, [B, 1, L, L]
        return self.around(x, lambda y: self.attention(y, y, score_mask))  # residuals, normalization, feed-forward


class HierarchicalLayer(nn.Module):
    """Global layer of the Hierarchical Transformer, which exchanges information between paragraphs.

    Each head pools the tokens of a paragraph to a vector of size D / N and attends between these vectors. A linear
    layer joins the heads, and the result is added to every token of the paragraph.
    """

    def __init__(self, size: int, heads: int, feed_forward: int, dropout: float, norm: Norm) -> None:
        super().__init__()
        self.pooling = MultiHeadPooling(size, heads)
        self.projections = nn.Parameter(torch.empty(3, heads, size // heads, size // heads))  # to queries, keys, values
        nn.init.normal_(self.projections, std=(size // heads) ** -0.5)
        self.attention_dropout = dropout
        self.around = AroundFeedForward(size, feed_forward, dropout, norm)

    def between(self, x: Tensor, token_mask: Tensor, mask: Tensor) -> Tensor:
        """Pool L paragraphs and attend between them, tokens [B, L, n, D] -> [B, L, 1, D]; masks as in `forward`."""
        pooled = self.pooling.by_head(x, token_mask).transpose(1, 2)                         # [B, N, L, D / N]
        queries, keys, values = (pooled @ self.projections.unsqueeze(1)).unbind(0)           # each as `pooled`
        dropout = self.attention_dropout if self.training else 0.0
        context = F.scaled_dot_product_attention(queries, keys, values, mask[:, None, None], dropout)
        return self.pooling.output(context.transpose(1, 2).flatten(2)).unsqueeze(2)  # joins the heads

    def forward(self, x: Tensor, token_mask: Tensor, mask: Tensor) -> Tensor:
        """Apply the layer to tokens [B, L, n, D]; masks are [B, L, n], True somewhere in each paragraph, and [B, L]."""
        return self.around(x, lambda y: self.between(y, token_mask, mask))
