"""Pooling, graph layers and hierarchical layers against loops over the printed formulas, forward and gradient."""

import math

import pytest
import torch
from torch import Tensor, nn

from lightning_modules.graphsum.graph_attention import (
    GraphBias,
    GraphEncoderLayer,
    HierarchicalLayer,
    MeanPooling,
    MultiHeadPooling,
)

B, L, n, D, N, SIGMA = 2, 4, 5, 12, 3, 0.7
d = D // N


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(4)


def scattered(module: nn.Module) -> nn.Module:
    """In double precision, away from initial values that hide errors."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)
    return module.double().eval()


def inputs(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def same(ours: Tensor, theirs: Tensor, module: nn.Module, *given: Tensor) -> None:
    """Equal values, and equal gradients of everything that they depend on."""
    torch.testing.assert_close(ours, theirs)
    leaves = [*module.parameters(), *given]
    weights = torch.randn_like(ours)
    for one, other in zip(*(torch.autograd.grad((out * weights).sum(), leaves) for out in (ours, theirs))):
        torch.testing.assert_close(one, other)


def softmax(scores: list[Tensor]) -> list[Tensor]:
    exps = [score.exp() for score in scores]
    return [value / sum(exps) for value in exps]


def head(linear: nn.Linear, x: Tensor, h: int) -> Tensor:
    """Apply the rows of one head of a joint projection to a vector."""
    rows = slice(h * d, (h + 1) * d)
    bias = 0 if linear.bias is None else linear.bias[rows]  # keys have none
    return linear.weight[rows] @ x + bias


def feed_forward(layer, x: Tensor) -> Tensor:
    return layer.outer.weight @ (layer.inner.weight @ x + layer.inner.bias).relu() + layer.outer.bias


def joined(around, x: Tensor, attend) -> list[Tensor]:
    """Rows x, what `attend` makes of them, and the feed-forward network: printed (`post`), released (`pre`)."""
    network = around.feed_forward
    if around.before is None:
        added = attend(x)
        return [around.norm(feed_forward(network, u + row) + row) for row, u in zip(x, added)]
    added = attend([around.before(row) for row in x])
    return [row + u + feed_forward(network, around.norm(row + u)) for row, u in zip(x, added)]


def pooled_heads(pooling: MultiHeadPooling, tokens: list[Tensor]) -> list[Tensor]:
    """Per head: a scalar key a token, softmax, the weighted values."""
    heads = []
    for h in range(N):
        weights = softmax([pooling.key.weight[h] @ token for token in tokens])
        heads.append(sum(a * head(pooling.value, token, h) for a, token in zip(weights, tokens)))
    return heads


def test_pooling_equals_the_formula_and_leaves_padding_out():
    pooling, x = scattered(MultiHeadPooling(D, N)), inputs(B, n, D)
    mask = torch.tensor([[True] * n, [True] * 2 + [False] * 3])
    rows = [pooled_heads(pooling, list(x[b, : mask[b].sum()])) for b in range(B)]
    expected = torch.stack([pooling.output.weight @ torch.cat(heads) + pooling.output.bias for heads in rows])
    same(pooling(x, mask), expected, pooling, x)


def test_mean_pooling_is_the_mean_of_real_tokens():
    x, mask = inputs(B, n, D), torch.tensor([[True] * n, [True] * 2 + [False] * 3])
    torch.testing.assert_close(MeanPooling()(x, mask), torch.stack([x[0].mean(0), x[1, :2].mean(0)]))


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("size", [1, L])
@pytest.mark.parametrize("learned", [False, True])
def test_graph_layer_equals_the_formula(norm, size, learned):
    layer = scattered(GraphEncoderLayer(D, N, 16, 0.1, norm, GraphBias(SIGMA, learned)))
    sigma = layer.bias.log_sigma.exp()
    assert learned or sigma.item() == pytest.approx(SIGMA)
    x, graph = inputs(B, size, D), torch.rand(B, size, size, dtype=torch.float64)
    attention = layer.attention

    def attend(rows: list[Tensor], b: int) -> list[Tensor]:
        made = []
        for i, row in enumerate(rows):
            u = []
            for h in range(N):
                query = head(attention.query, row, h)
                scores = [
                    query @ head(attention.key, other, h) / math.sqrt(d) - (1 - graph[b, i, j]) ** 2 / (2 * sigma**2)
                    for j, other in enumerate(rows)
                ]
                alpha = softmax(scores)
                u.append(sum(a * head(attention.value, other, h) for a, other in zip(alpha, rows)))
            made.append(attention.output.weight @ torch.cat(u) + attention.output.bias)
        return made

    rows = [joined(layer.around, list(x[b]), lambda y, b=b: attend(y, b)) for b in range(B)]
    expected = torch.stack([torch.stack(row) for row in rows])
    ours = layer(x, torch.ones(B, size, dtype=torch.bool), graph)
    torch.testing.assert_close(ours, expected)
    if size > 1:  # alone, a paragraph's weight is 1 whatever the score
        same(ours, expected, layer, x)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_hierarchical_layer_equals_the_formula(norm):
    layer = scattered(HierarchicalLayer(D, N, 16, 0.1, norm))
    x, sizes = inputs(1, 3, n, D), [5, 2, 4]
    token_mask = torch.arange(n) < torch.tensor([sizes]).unsqueeze(-1)
    flat = [(j, i) for j in range(3) for i in range(sizes[j])]

    def attend(rows: list[Tensor]) -> list[Tensor]:
        paragraphs = [[row for row, (at, _) in zip(rows, flat) if at == j] for j in range(3)]
        heads = [pooled_heads(layer.pooling, tokens) for tokens in paragraphs]
        made = []
        for j in range(3):
            context = []
            for h in range(N):
                query, key, value = (layer.projections[k, h] for k in range(3))
                scores = [(heads[j][h] @ query) @ (other[h] @ key) / math.sqrt(d) for other in heads]
                context.append(sum(a * (other[h] @ value) for a, other in zip(softmax(scores), heads)))
            output = layer.pooling.output
            made.append(output.weight @ torch.cat(context) + output.bias)
        return [made[j] for j, _ in flat]

    expected = torch.stack(joined(layer.around, [x[0, j, i] for j, i in flat], attend))
    ours = layer(x, token_mask, torch.ones(1, 3, dtype=torch.bool))
    same(ours[token_mask], expected, layer, x)
    padded = torch.cat([x, torch.randn(1, 2, n, D, dtype=torch.float64)], 1)
    more = torch.cat([token_mask, torch.ones(1, 2, n, dtype=torch.bool)], 1)
    with_padding = layer(padded, more, torch.tensor([[True] * 3 + [False] * 2]))
    torch.testing.assert_close(with_padding[:, :3][token_mask], expected)
