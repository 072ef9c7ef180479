"""The hierarchical graph attention of GraphSum's decoder (Li et al., ACL 2020)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_modules.graphsum.graph_attention import GraphBias
from lightning_modules.graphsum.grouped_attention import grouped_attention
from lightning_modules.networks.dropout import Dropout
from lightning_modules.networks.output_layer import upcast_half
from lightning_modules.networks.transformer import MultiHeadAttention


class GraphMemory(NamedTuple):
    """Keys and values of the documents for one decoder layer."""

    token_keys: Tensor  # [B, N, L n, D / N]
    token_values: Tensor  # same shape
    paragraph_keys: Tensor  # [B, N, L, D / N]
    paragraph_values: Tensor  # same shape
    token_mask: Tensor  # True at tokens, at least one in each paragraph, [B, L, n]
    paragraph_mask: Tensor  # True at real paragraphs, [B, L]
    graph: Tensor  # G, [B, L, L]


def rows_at(graph: Tensor, position: Tensor) -> Tensor:
    """Interpolate the rows of a graph linearly at positions s in [0, L - 1]: [B, L, L], [B, N, T] -> [B, N, T, L].

    G[s] = (ceil(s) - s) G[floor(s)] + (s - floor(s)) G[ceil(s)], written as the sum over i of max(0, 1 - |s - i|) G[i].
    """
    paragraphs = torch.arange(graph.shape[1], device=graph.device)
    nearness = F.relu(1 - (position.unsqueeze(-1) - paragraphs).abs())                       # [B, N, T, L]
    return nearness @ graph.unsqueeze(1).to(nearness.dtype)


class GraphAttention(nn.Module):
    """Attention to paragraphs and, within them, to their tokens: d_t = U_d^T [g_t; l_t].

    Global: beta_tj = softmax(e_tj - (1 - G[s_t][j])^2 / (2 sigma^2)), g_t = sum_j beta_tj x_j. Local: gamma is softmax
    within each paragraph, l_t = sum_j sum_i gamma_tji beta_tj x_ji. The position of the target token among the
    paragraphs is s_t = (L - 1) sigmoid(U^T tanh(W q_t)), of each head.

    Args:
        size: D.
        heads: N.
        dropout: dropout on beta, both as weights of paragraphs and of their tokens.
        bias: bias of the scores by the graph; None attends without graph and position.
    """

    def __init__(self, size: int, heads: int, dropout: float, bias: GraphBias | None) -> None:
        super().__init__()
        self.tokens, self.paragraphs = (MultiHeadAttention(size, heads, dropout) for _ in range(2))
        # the heads are joined by U_d, once
        self.tokens.output = self.paragraphs.output = nn.Identity()
        self.join, self.bias, self.dropout = nn.Linear(2 * size, size), bias, Dropout(dropout)
        nn.init.xavier_uniform_(self.join.weight)
        nn.init.zeros_(self.join.bias)
        if bias is not None:
            width = size // heads
            self.inner = nn.Parameter(torch.randn(heads, width, width) * width**-0.5)
            self.outer = nn.Parameter(torch.randn(heads, width, 1) * width**-0.5)

    def remember(
        self, tokens: Tensor, paragraphs: Tensor, token_mask: Tensor, paragraph_mask: Tensor, graph: Tensor
    ) -> GraphMemory:
        """Compute the keys and values of tokens [B, L, n, D] and paragraphs [B, L, D], once for a document."""
        of_tokens = (tensor.contiguous() for tensor in self.tokens.project(tokens.flatten(1, 2)))
        return GraphMemory(*of_tokens, *self.paragraphs.project(paragraphs), token_mask, paragraph_mask, graph)

    def position(self, query: Tensor, paragraph_mask: Tensor) -> Tensor:
        """Return s_t of queries [B, N, T, D / N], [B, N, T], in [0, L - 1] for the L paragraphs of each document.

        At least in float32, because half precision is too coarse for fractions of a paragraph.
        """
        share = upcast_half(((query @ self.inner).tanh() @ self.outer).squeeze(-1)).sigmoid()       # [B, N, T]
        return share * (paragraph_mask.sum(-1) - 1)[:, None, None]

    def beta(self, x: Tensor, memory: GraphMemory) -> Tensor:
        """Return the attention to paragraphs, x [B, T, D] -> [B, N, T, L]; at least float32 under autocast."""
        query = self.paragraphs.split(self.paragraphs.query(x))                              # [B, N, T, D / N]
        scores = query @ memory.paragraph_keys.transpose(-1, -2) * query.shape[-1] ** -0.5   # [B, N, T, L]
        if self.bias is not None:
            scores = scores + self.bias(rows_at(memory.graph, self.position(query, memory.paragraph_mask)))
        return scores.masked_fill(~memory.paragraph_mask[:, None, None], float("-inf")).softmax(-1)

    def forward(self, x: Tensor, memory: GraphMemory, mask: None = None) -> Tensor:
        """Compute d from x, both [B, T, D], with the masks of the memory."""
        beta = self.dropout(self.beta(x, memory)).to(memory.paragraph_values.dtype)          # [B, N, T, L]
        overall = beta @ memory.paragraph_values                                             # [B, N, T, D / N]
        query = self.tokens.split(self.tokens.query(x))                                      # [B, N, T, D / N]
        token_memory = (memory.token_keys, memory.token_values, memory.token_mask)
        local = grouped_attention(query, *token_memory, beta)                                # [B, N, T, D / N]
        return self.join(torch.cat([part.transpose(1, 2).flatten(2) for part in (overall, local)], -1))
