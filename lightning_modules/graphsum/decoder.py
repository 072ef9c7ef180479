"""The hierarchical graph attention of GraphSum's decoder (Li et al., ACL 2020)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from lightning_modules.graphsum.graph_attention import GraphBias
from lightning_modules.networks.dropout import Dropout
from lightning_modules.networks.output_layer import upcast_half
from lightning_modules.networks.transformer import MultiHeadAttention

# number of attention weights in memory at once: 2 MB stay in a CPU's caches, 512 MB keep a GPU busy
PART_ELEMENTS = {"cpu": 2**19, "cuda": 2**27}


class _GroupedAttention(torch.autograd.Function):
    """`grouped_attention` for R rows, one per document and head: queries [R, T, d], keys and values [R, L n, d].

    Gamma is the softmax within each of L groups of n keys; `shares`, [R, T, L], are the weights of groups. The backward
    pass computes gamma again, since autograd keeps two tensors [R, T, L n]. The bias is -inf at padding, [R, 1, L n].
    """

    @staticmethod
    def gamma(rows: slice, query: Tensor, keys: Tensor, bias: Tensor, groups: int) -> Tensor:
        """Return gamma for a slice of r rows, L = `groups`; the bias is -inf at padding."""
        scores = torch.baddbmm(bias[rows], query[rows], keys[rows].mT, alpha=query.shape[-1] ** -0.5)   # [r, T, L n]
        return scores.unflatten(-1, (groups, -1)).softmax(-1, dtype=scores.dtype)                # [r, T, L, n]

    @staticmethod
    def forward(ctx, query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, shares: Tensor) -> Tensor:
        ctx.save_for_backward(query, keys, values, bias, shares)
        mixed = torch.empty_like(query)  # weighted sums of values
        for rows in _slices_of_rows(query, keys):
            weights = _GroupedAttention.gamma(rows, query, keys, bias, shares.shape[-1])         # [r, T, L, n]
            weights *= shares[rows].unsqueeze(-1)
            torch.bmm(weights.flatten(-2), values[rows], out=mixed[rows])                        # [r, T, d]
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        """With w = share gamma, dx = d loss / d x: dshare = sum of dw gamma over a group, dscore = w (dw - dshare)."""
        query, keys, values, bias, shares = ctx.saved_tensors
        grad = grad.contiguous()
        scale = query.shape[-1] ** -0.5
        grad_query, grad_keys, grad_values, grad_shares = map(torch.empty_like, (query, keys, values, shares))
        for rows in _slices_of_rows(query, keys):
            weights = _GroupedAttention.gamma(rows, query, keys, bias, shares.shape[-1])         # gamma, [r, T, L, n]
            grad_scores = (grad[rows] @ values[rows].mT).view_as(weights)                        # at first dw
            grad_scores *= weights                                                               # dw gamma
            grad_share = grad_scores.sum(-1, keepdim=True)                                       # [r, T, L, 1]
            share = shares[rows].unsqueeze(-1)                                                   # [r, T, L, 1]
            grad_scores.addcmul_(weights, grad_share, value=-1).mul_(share * scale)              # dscore times scale
            grad_scores = grad_scores.flatten(-2)                                                # [r, T, L n]
            weights = weights.mul_(share).flatten(-2)                                            # w, [r, T, L n]
            torch.bmm(grad_scores, keys[rows], out=grad_query[rows])
            torch.bmm(grad_scores.mT, query[rows], out=grad_keys[rows])
            torch.bmm(weights.mT, grad[rows], out=grad_values[rows])
            grad_shares[rows] = grad_share.squeeze(-1)
        return grad_query, grad_keys, grad_values, None, grad_shares


def _slices_of_rows(query: Tensor, keys: Tensor) -> list[slice]:
    """Split the R rows of queries [R, T, d], keys [R, L n, d] into slices with at most `PART_ELEMENTS` weights each."""
    max_elements = PART_ELEMENTS.get(query.device.type, PART_ELEMENTS["cuda"])
    rows = max(1, max_elements // (query.shape[1] * keys.shape[1]))
    return [slice(start, start + rows) for start in range(0, len(query), rows)]


def grouped_attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, shares: Tensor) -> Tensor:
    """Return sum_j share_tj sum_i gamma_tji v_ji for query t; gamma: softmax over the n keys i of each of L groups j.

    Queries and the result are [B, N, T, d], keys and values [B, N, L n, d], the shares of groups [B, N, T, L]. The mask
    of keys, [B, L, n], is True somewhere in each group. For the backward pass, no tensor of the size of gamma is kept.
    """
    bias = query.new_zeros(mask.shape).masked_fill_(~mask, float("-inf")).flatten(1)             # [B, L n]
    bias = bias[:, None, None].expand(-1, query.shape[1], -1, -1)                                # [B, N, 1, L n]
    by_head = (tensor.flatten(0, 1) for tensor in (query, keys, values, bias, shares.to(query.dtype)))  # [B N, ...]
    return _GroupedAttention.apply(*by_head).view_as(query)


class GraphMemory(NamedTuple):
    """Keys and values, by N heads, of B documents of L paragraphs with n tokens each, for one decoder layer."""

    token_keys: Tensor  # [B, N, L n, D / N]
    token_values: Tensor  # same shape
    paragraph_keys: Tensor  # [B, N, L, D / N]
    paragraph_values: Tensor  # same shape
    token_mask: Tensor  # True at tokens, at least one in each paragraph, [B, L, n]
    paragraph_mask: Tensor  # True at real paragraphs, [B, L]
    graph: Tensor  # weights G between paragraphs, in [0, 1], [B, L, L]


def rows_at(graph: Tensor, position: Tensor) -> Tensor:
    """Interpolate the rows of a graph linearly at positions s in [0, L - 1]: [B, L, L], [B, N, T] -> [B, N, T, L].

    G[s] = (ceil(s) - s) G[floor(s)] + (s - floor(s)) G[ceil(s)], written as the sum over i of max(0, 1 - |s - i|) G[i].
    """
    paragraphs = torch.arange(graph.shape[1], device=graph.device)
    row_weights = F.relu(1 - (position.unsqueeze(-1) - paragraphs).abs())                    # [B, N, T, L]
    return row_weights @ graph.unsqueeze(1).to(row_weights.dtype)


class GraphAttention(nn.Module):
    """Attention to paragraphs and, within them, to their tokens: d_t = U_d^T [g_t; l_t].

    Target token t, with query q_t, attends by scores e to paragraph j and to token i in it, and sums their values v.
    Global: beta_tj = softmax(e_tj - (1 - G[s_t][j])^2 / (2 sigma^2)), g_t = sum_j beta_tj v_j. Local: gamma is softmax
    within each paragraph, l_t = sum_j sum_i gamma_tji beta_tj v_ji. The position of the target token among the
    paragraphs is s_t = (L - 1) sigmoid(U^T tanh(W q_t)), of each head. Dropout is on beta; g_t and l_t use the same
    dropped-out beta. Without a `bias`, graph and position are not used. `rows_at` interpolates G[s].
    """

    def __init__(self, size: int, heads: int, dropout: float, bias: GraphBias | None) -> None:
        super().__init__()
        self.tokens = MultiHeadAttention(size, heads, dropout)
        self.paragraphs = MultiHeadAttention(size, heads, dropout)
        self.tokens.output = self.paragraphs.output = nn.Identity()  # `join`, U_d, takes the heads of both
        self.join = nn.Linear(2 * size, size)
        self.bias = bias
        self.dropout = Dropout(dropout)
        nn.init.xavier_uniform_(self.join.weight)
        nn.init.zeros_(self.join.bias)
        if bias is not None:
            width = size // heads
            self.inner = nn.Parameter(torch.randn(heads, width, width) * width**-0.5)  # W of s_t
            self.outer = nn.Parameter(torch.randn(heads, width, 1) * width**-0.5)  # U of s_t

    def remember(
        self, tokens: Tensor, paragraphs: Tensor, token_mask: Tensor, paragraph_mask: Tensor, graph: Tensor
    ) -> GraphMemory:
        """Compute the keys and values of tokens [B, L, n, D] and paragraphs [B, L, D], once for all targets."""
        # contiguous, because `grouped_attention` would otherwise copy them at each decoding step
        token_memory = (tensor.contiguous() for tensor in self.tokens.project(tokens.flatten(1, 2)))
        return GraphMemory(*token_memory, *self.paragraphs.project(paragraphs), token_mask, paragraph_mask, graph)

    def position(self, query: Tensor, paragraph_mask: Tensor) -> Tensor:
        """Return s_t of queries [B, N, T, D / N], [B, N, T], in [0, L - 1] for the L paragraphs of each document.

        At least in float32, because half precision is too coarse for fractions of a paragraph.
        """
        fraction = upcast_half(((query @ self.inner).tanh() @ self.outer).squeeze(-1)).sigmoid()    # [B, N, T]
        return fraction * (paragraph_mask.sum(-1) - 1)[:, None, None]

    def beta(self, x: Tensor, memory: GraphMemory) -> Tensor:
        """Return the attention to paragraphs, x [B, T, D] -> [B, N, T, L]; at least float32 under autocast."""
        query = self.paragraphs.split(self.paragraphs.query(x))                              # [B, N, T, D / N]
        scores = query @ memory.paragraph_keys.transpose(-1, -2) * query.shape[-1] ** -0.5   # [B, N, T, L]
        if self.bias is not None:
            scores = scores + self.bias(rows_at(memory.graph, self.position(query, memory.paragraph_mask)))
        return scores.masked_fill(~memory.paragraph_mask[:, None, None], float("-inf")).softmax(-1)

    def forward(self, x: Tensor, memory: GraphMemory, mask: None = None) -> Tensor:
        """Compute d from x, both [B, T, D]; `mask`, an argument of all cross-attention, is not used."""
        beta = self.dropout(self.beta(x, memory)).to(memory.paragraph_values.dtype)          # [B, N, T, L]
        global_part = beta @ memory.paragraph_values                                         # g_t, [B, N, T, D / N]
        query = self.tokens.split(self.tokens.query(x))                                  # [B, N, T, D / N]
        token_memory = (memory.token_keys, memory.token_values, memory.token_mask)
        local_part = grouped_attention(query, *token_memory, beta)                           # l_t, [B, N, T, D / N]
        return self.join(torch.cat([part.transpose(1, 2).flatten(2) for part in (global_part, local_part)], -1))
