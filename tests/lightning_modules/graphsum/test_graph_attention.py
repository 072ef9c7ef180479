import math

import pytest
import torch
from torch import Tensor, nn

from lightning_modules.graphsum import graph_attention as layers
from lightning_modules.graphsum.decoder import PART_ELEMENTS, GraphAttention, grouped_attention
from lightning_modules.graphsum.graph_attention import GraphBias, MeanPooling, MultiHeadPooling
from tests.lightning_modules.networks.test_transformer import scattered

B, L, n, T, D, N, SIGMA = 2, 4, 5, 3, 12, 3, 0.7
d = D // N


def inputs(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def same(ours: Tensor, theirs: Tensor, module: nn.Module, *inputs: Tensor) -> None:
    """Equal values, and equal gradients of everything that they depend on."""
    torch.testing.assert_close(ours, theirs)
    leaves = [*module.parameters(), *inputs]
    weights = torch.randn_like(ours)
    torch.testing.assert_close(*(torch.autograd.grad((out * weights).sum(), leaves) for out in (ours, theirs)))


def head(linear: nn.Linear, x: Tensor, h: int) -> Tensor:
    rows = slice(h * d, (h + 1) * d)
    return nn.functional.linear(x, linear.weight[rows], None if linear.bias is None else linear.bias[rows])


def joined(around, x: Tensor, attend) -> Tensor:
    """Rows x, what `attend` makes of them, and the feed-forward network: printed (`post`), released (`pre`)."""
    inner, outer = around.feed_forward.inner, around.feed_forward.outer
    if around.before is None:
        return around.norm(outer(inner(attend(x) + x).relu()) + x)
    x = x + attend(around.before(x))
    return x + outer(inner(around.norm(x)).relu())


def pooled_heads(pooling: MultiHeadPooling, tokens: Tensor) -> list[Tensor]:
    """Per head: a scalar key a token, softmax, the weighted values."""
    weights = (tokens @ pooling.key.weight.T).softmax(0)  # [n, N]
    return [weights[:, h] @ head(pooling.value, tokens, h) for h in range(N)]


def test_pooling_equals_the_formula_and_leaves_padding_out():
    pooling, x = scattered(MultiHeadPooling(D, N)).double(), inputs(B, n, D)
    mask = torch.tensor([[True] * n, [True] * 2 + [False] * 3])
    rows = [torch.cat(pooled_heads(pooling, x[b, : mask[b].sum()])) for b in range(B)]
    same(pooling(x, mask), pooling.output(torch.stack(rows)), pooling, x)
    torch.testing.assert_close(MeanPooling()(x, mask), torch.stack([x[0].mean(0), x[1, :2].mean(0)]))


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("size", [1, L])
@pytest.mark.parametrize("learned", [False, True])
def test_graph_layer_equals_the_formula(norm, size, learned):
    layer = scattered(layers.GraphEncoderLayer(D, N, 16, 0.1, norm, GraphBias(SIGMA, learned))).double()
    sigma = layer.bias.log_sigma.exp()
    assert learned or sigma.item() == pytest.approx(SIGMA)
    x, graph = inputs(B, size, D), torch.rand(B, size, size, dtype=torch.float64)
    attention = layer.attention

    def attend(rows: Tensor, graph: Tensor) -> Tensor:
        u = []
        for h in range(N):
            query, key, value = (head(linear, rows, h) for linear in (attention.query, attention.key, attention.value))
            scores = query @ key.T / math.sqrt(d) - (1 - graph) ** 2 / (2 * sigma**2)
            u.append(scores.softmax(-1) @ value)
        return attention.output(torch.cat(u, -1))

    expected = torch.stack([joined(layer.around, x[b], lambda y, b=b: attend(y, graph[b])) for b in range(B)])
    ours = layer(x, torch.ones(B, size, dtype=torch.bool), graph)
    torch.testing.assert_close(ours, expected)
    if size > 1:  # alone, a paragraph's weight is 1 whatever the score
        same(ours, expected, layer, x)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_hierarchical_layer_equals_the_formula(norm):
    layer = scattered(layers.HierarchicalLayer(D, N, 16, 0.1, norm)).double()
    x, sizes = inputs(1, 3, n, D), [5, 2, 4]
    token_mask = torch.arange(n) < torch.tensor([sizes]).unsqueeze(-1)

    def attend(rows: Tensor) -> Tensor:
        pooled = [pooled_heads(layer.pooling, tokens) for tokens in rows.split(sizes)]
        context = []
        for h in range(N):
            states = torch.stack([heads[h] for heads in pooled])
            query, key, value = (states @ projection for projection in layer.projections[:3, h])
            context.append((query @ key.T / math.sqrt(d)).softmax(-1) @ value)
        return layer.pooling.output(torch.cat(context, -1)).repeat_interleave(torch.tensor(sizes), 0)

    expected = joined(layer.around, x[token_mask], attend)
    same(layer(x, token_mask, torch.ones(1, 3, dtype=torch.bool))[token_mask], expected, layer, x)


def row_by_hand(graph: Tensor, s: Tensor) -> Tensor:
    """G[s]: at an exact integer that row alone."""
    low, high = math.floor(s.item()), math.ceil(s.item())
    if low == high:
        return graph[low]
    return (high - s) * graph[low] + (s - low) * graph[high]


def position_by_hand(attention: GraphAttention, query: Tensor, h: int, L: int) -> Tensor:
    return (L - 1) * torch.sigmoid((query @ attention.inner[h]).tanh() @ attention.outer[h, :, 0])


def by_hand(attention: GraphAttention, x: Tensor, tokens: Tensor, sizes: list[int], vectors: Tensor, graph: Tensor):
    """d_t of one target token x [D]: L paragraphs of n tokens [L, n, D], their vectors [L, D], G [L, L]."""
    overall, local, L = [], [], len(sizes)
    for h in range(N):
        query = head(attention.paragraphs.query, x, h)
        scores = head(attention.paragraphs.key, vectors, h) @ query / math.sqrt(d)
        if attention.bias is not None:
            row = row_by_hand(graph, position_by_hand(attention, query, h, L))
            scores = scores - (1 - row) ** 2 / (2 * SIGMA**2)
        beta = scores.softmax(0)
        overall.append(beta @ head(attention.paragraphs.value, vectors, h))
        query, mixed = head(attention.tokens.query, x, h), 0
        for j in range(L):
            real = tokens[j, : sizes[j]]
            gamma = (head(attention.tokens.key, real, h) @ query / math.sqrt(d)).softmax(0)
            mixed = mixed + beta[j] * (gamma @ head(attention.tokens.value, real, h))
        local.append(mixed)
    return attention.join(torch.cat([*overall, *local]))


def documents(L: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Tokens, token mask, vectors, paragraph mask and graph of one document of L paragraphs and one of fewer."""
    sizes = torch.randint(1, n + 1, (B, L))
    mask = torch.arange(L) < torch.tensor([L, max(1, L - 2)]).unsqueeze(1)
    token_mask = (torch.arange(n) < sizes.unsqueeze(-1)) & mask.unsqueeze(-1)
    token_mask[..., 0] |= ~mask
    return inputs(B, L, n, D), token_mask, inputs(B, L, D), mask, torch.rand(B, L, L, dtype=torch.float64)


def expected_of(attention: GraphAttention, x: Tensor, memory: tuple[Tensor, ...]) -> Tensor:
    tokens, token_mask, vectors, mask, graph = memory
    rows = []
    for b, size in enumerate(mask.sum(1).tolist()):
        one = (tokens[b, :size], token_mask[b, :size].sum(-1).tolist(), vectors[b, :size], graph[b, :size, :size])
        rows.append(torch.stack([by_hand(attention, x[b, t], *one) for t in range(T)]))
    return torch.stack(rows)


def decoded(attention: GraphAttention, x: Tensor, memory: tuple[Tensor, ...]) -> Tensor:
    tokens, token_mask, vectors, mask, graph = memory
    return attention(x, attention.remember(tokens, vectors, token_mask, mask, graph))


@pytest.mark.parametrize("with_graph", [True, False])
@pytest.mark.parametrize("L, room", [(2, 2**20), (5, 1), (5, 160), (5, 2**20)])  # rows of tokens: all, one, two, all
def test_the_decoder_equals_the_formula_at_fractional_positions(L, room, with_graph, monkeypatch):
    monkeypatch.setitem(PART_ELEMENTS, "cpu", room)
    attention = scattered(GraphAttention(D, N, 0.1, GraphBias(SIGMA) if with_graph else None)).double()
    x, memory = inputs(B, T, D), documents(L)
    same(decoded(attention, x, memory), expected_of(attention, x, memory), attention, x, memory[0], memory[2])


def test_one_paragraph_is_attention_to_its_vector_and_its_tokens():
    attention = scattered(GraphAttention(D, N, 0.1, GraphBias(SIGMA))).double()
    x, memory = inputs(B, T, D), documents(1)
    made = decoded(attention, x, memory)
    torch.testing.assert_close(made, expected_of(attention, x, memory))
    made.sum().backward()
    assert x.grad.isfinite().all() and all(p.grad.isfinite().all() for p in attention.parameters())
    assert not attention.inner.grad.any()  # there is nowhere else to stand


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_decoder_equals_the_formula_at_integer_positions(share, monkeypatch):
    """Positions 0, 2 and 4 of five paragraphs, where the first document's are exact."""
    attention = scattered(GraphAttention(D, N, 0.1, GraphBias(SIGMA))).double()
    x, memory = inputs(B, T, D), documents(5)

    def fixed(query: Tensor, mask: Tensor) -> Tensor:
        return (torch.full(query.shape[:-1], share, dtype=query.dtype) * (mask.sum(-1) - 1)[:, None, None]).round()

    monkeypatch.setattr(attention, "position", fixed)
    by_hand = lambda attention, query, h, L: torch.tensor(share * (L - 1), dtype=torch.float64).round()  # noqa: E731
    monkeypatch.setattr("test_graph_attention.position_by_hand", by_hand)
    torch.testing.assert_close(decoded(attention, x, memory), expected_of(attention, x, memory))


def test_autocast_rounds_no_positions_and_attention_to_groups_stores_only_inputs():
    attention = scattered(GraphAttention(D, N, 0.1, GraphBias(SIGMA)))
    query, mask = torch.randn(1, N, 200, d), torch.ones(1, 30, dtype=torch.bool)
    exact = attention.position(query, mask)
    with torch.autocast("cpu", torch.bfloat16):
        rough = attention.position(query, mask)
    far = exact > 16
    rounded = (exact.bfloat16() - exact)[far].abs().mean()
    assert rough.dtype == torch.float32 and (rough - exact)[far].abs().mean() < rounded / 2
    query, keys, values = (torch.randn(B, N, size, d) for size in (D, L * n, L * n))
    mask, shares, stored = torch.ones(B, L, n, dtype=torch.bool), torch.rand(B, N, D, L), []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: stored.append(x.numel()) or x, lambda x: x):
        grouped_attention(query.requires_grad_(), keys, values, mask, shares)
    assert max(stored) < B * N * D * L * n
    shares.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = [tensor.detach().bfloat16().requires_grad_() for tensor in (query, keys, values)]
        made = grouped_attention(*half, mask, shares)
    made.float().sum().backward()
    assert [tensor.grad.dtype for tensor in half] == [torch.bfloat16] * 3 and shares.grad.dtype == torch.float32
    torch.testing.assert_close(made.float(), grouped_attention(query, keys, values, mask, shares), atol=0.05, rtol=0.05)
