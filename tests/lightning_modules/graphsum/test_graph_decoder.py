"""The decoder's attention against a loop over the printed formulas, forward and gradient."""

import math

import pytest
import torch
from test_graph_attention import head, same, scattered, softmax
from torch import Tensor

from lightning_modules.graphsum.decoder import GraphAttention
from lightning_modules.graphsum.graph_attention import GraphBias

B, T, n, D, N, SIGMA = 2, 3, 4, 12, 3, 0.8
d = D // N


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(6)


def double(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def row_by_hand(graph: Tensor, s: Tensor) -> Tensor:
    """G[s]: at an exact integer that row alone."""
    low, high = math.floor(s.item()), math.ceil(s.item())
    if low == high:
        return graph[low]
    return (high - s) * graph[low] + (s - low) * graph[high]


def position_by_hand(attention: GraphAttention, query: Tensor, h: int, L: int) -> Tensor:
    return (L - 1) * torch.sigmoid((query @ attention.inner[h]).tanh() @ attention.outer[h, :, 0])


def by_hand(attention: GraphAttention, x: Tensor, tokens: Tensor, sizes: list[int], vectors: Tensor, graph: Tensor):
    """d_t of one target token x [D]: L paragraphs of so many tokens [L, n, D], their vectors [L, D], G [L, L]."""
    overall, local, L = [], [], len(sizes)
    for h in range(N):
        query = head(attention.paragraphs.query, x, h)
        scores = [query @ head(attention.paragraphs.key, vector, h) / math.sqrt(d) for vector in vectors]
        if attention.bias is not None:
            row = row_by_hand(graph, position_by_hand(attention, query, h, L))
            scores = [score - (1 - weight) ** 2 / (2 * SIGMA**2) for score, weight in zip(scores, row)]
        beta = softmax(scores)
        overall.append(sum(b * head(attention.paragraphs.value, vector, h) for b, vector in zip(beta, vectors)))
        query, mixed = head(attention.tokens.query, x, h), 0
        for j in range(L):
            real = tokens[j, : sizes[j]]
            gamma = softmax([query @ head(attention.tokens.key, token, h) / math.sqrt(d) for token in real])
            mixed = mixed + sum(g * beta[j] * head(attention.tokens.value, token, h) for g, token in zip(gamma, real))
        local.append(mixed)
    return attention.join.weight @ torch.cat([*overall, *local]) + attention.join.bias


def documents(L: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Tokens, token mask, vectors, paragraph mask and graph of one document of L paragraphs and one of fewer."""
    sizes = torch.randint(1, n + 1, (B, L))
    mask = torch.arange(L) < torch.tensor([L, max(1, L - 2)]).unsqueeze(1)
    token_mask = (torch.arange(n) < sizes.unsqueeze(-1)) & mask.unsqueeze(-1)
    token_mask[..., 0] |= ~mask
    return double(B, L, n, D), token_mask, double(B, L, D), mask, torch.rand(B, L, L, dtype=torch.float64)


def expected(attention: GraphAttention, x: Tensor, given: tuple[Tensor, ...]) -> Tensor:
    tokens, token_mask, vectors, mask, graph = given
    rows = []
    for b, size in enumerate(mask.sum(1).tolist()):
        sizes = token_mask[b, :size].sum(-1).tolist()
        one = (tokens[b, :size], sizes, vectors[b, :size], graph[b, :size, :size])
        rows.append(torch.stack([by_hand(attention, x[b, t], *one) for t in range(T)]))
    return torch.stack(rows)


def ours(attention: GraphAttention, x: Tensor, given: tuple[Tensor, ...]) -> Tensor:
    tokens, token_mask, vectors, mask, graph = given
    return attention(x, attention.remember(tokens, vectors, token_mask, mask, graph))


@pytest.mark.parametrize("with_graph", [True, False])
@pytest.mark.parametrize("L", [2, 5])
def test_equals_the_formula_at_fractional_positions(L, with_graph):
    attention = scattered(GraphAttention(D, N, 0.1, GraphBias(SIGMA) if with_graph else None))
    x, given = double(B, T, D), documents(L)
    same(ours(attention, x, given), expected(attention, x, given), attention, x, given[0], given[2])


def test_one_paragraph_is_attention_to_its_vector_and_its_tokens():
    attention = scattered(GraphAttention(D, N, 0.1, GraphBias(SIGMA)))
    x, given = double(B, T, D), documents(1)
    made = ours(attention, x, given)
    torch.testing.assert_close(made, expected(attention, x, given))
    made.sum().backward()
    assert x.grad.isfinite().all() and all(p.grad.isfinite().all() for p in attention.parameters())
    assert not attention.inner.grad.any()  # there is nowhere else to stand


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_equals_the_formula_at_integer_positions(share, monkeypatch):
    """Positions 0, 2 and 4 of five paragraphs, where the first document's are exact."""
    attention = scattered(GraphAttention(D, N, 0.1, GraphBias(SIGMA)))
    x, given = double(B, T, D), documents(5)

    def fixed(query: Tensor, mask: Tensor) -> Tensor:
        return (torch.full(query.shape[:-1], share, dtype=query.dtype) * (mask.sum(-1) - 1)[:, None, None]).round()

    monkeypatch.setattr(attention, "position", fixed)
    monkeypatch.setattr(
        "test_graph_decoder.position_by_hand",
        lambda attention, query, h, L: torch.tensor(share * (L - 1), dtype=torch.float64).round(),
    )
    torch.testing.assert_close(ours(attention, x, given), expected(attention, x, given))


def test_positions_under_autocast_are_not_rounded():
    """In half precision, positions after the 16th of 30 paragraphs would be rounded to eighths."""
    attention = scattered(GraphAttention(D, N, 0.1, GraphBias(SIGMA))).float()
    query, mask = torch.randn(1, N, 200, d), torch.ones(1, 30, dtype=torch.bool)
    exact = attention.position(query, mask)
    with torch.autocast("cpu", torch.bfloat16):
        rough = attention.position(query, mask)
    far = exact > 16
    rounded = (exact.bfloat16() - exact)[far].abs().mean()
    assert rough.dtype == torch.float32 and (rough - exact)[far].abs().mean() < rounded / 2
