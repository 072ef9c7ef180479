import math

import pytest
import torch
from torch.testing import assert_close

from lightning_modules.networks.chart import (
    best_trees,
    inside,
    log_partition,
    node_marginals,
    roots,
    span_marginals,
)
from tests.lightning_modules.networks.brute_trees import trees


def random_scores(batch, size, seed=0):
    return 2 * torch.randn(batch, size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def weights(scores, size):
    """exp(score) of every tree of one document."""
    return {tree: math.exp(sum(scores[i, j].item() for i, _, j in tree)) for tree in trees(0, size - 1)}


def test_there_are_catalan_many_trees():
    assert [len(trees(0, n - 1)) for n in range(1, 7)] == [1, 1, 2, 5, 14, 42]


@pytest.mark.parametrize("seed", range(3))
def test_partition_and_marginals_equal_enumeration_in_a_padded_batch(seed):
    scores, sizes = random_scores(6, 6, seed), torch.arange(1, 7)
    chart = inside(scores)
    spans = span_marginals(chart, sizes)
    nodes = node_marginals(chart, sizes)
    table = torch.zeros(6, 6, 6, 6, dtype=torch.double)
    table[nodes.document, nodes.start, nodes.split, nodes.end] = nodes.probability
    for b, size in enumerate(sizes.tolist()):
        weight = weights(scores[b], size)
        total = sum(weight.values())
        assert_close(roots(chart, sizes)[b].item(), math.log(total), atol=1e-9, rtol=0)
        expected = torch.zeros(6, 6, 6, dtype=torch.double)
        for tree, w in weight.items():
            for node in tree:
                expected[node] += w / total
        assert_close(table[b], expected, atol=1e-9, rtol=0)
        assert_close(spans[b], expected.sum(1), atol=1e-9, rtol=0)


def test_gradient_of_the_partition_equals_autograd_through_the_inside_algorithm():
    scores, sizes = random_scores(3, 9).requires_grad_(), torch.tensor([9, 4, 1])
    ours = torch.autograd.grad((log_partition(scores, sizes) * torch.tensor([1.0, 2.0, 3.0])).sum(), scores)[0]
    # autograd cannot follow the charts' in-place writes: the recursion once more, span by span
    plain = scores.detach().clone().requires_grad_()
    total = 0.0
    for b, size in enumerate(sizes.tolist()):
        table = {(i, i): torch.zeros((), dtype=torch.double) for i in range(size)}
        for width in range(1, size):
            for i in range(size - width):
                options = torch.stack([table[i, k] + table[k + 1, i + width] for k in range(i, i + width)])
                table[i, i + width] = plain[b, i, i + width] + options.logsumexp(0)
        total = total + (b + 1) * table[0, size - 1]
    assert_close(ours, torch.autograd.grad(total, plain)[0])
    assert torch.autograd.gradcheck(lambda s: log_partition(s, sizes), scores)


@pytest.mark.parametrize("seed", range(3))
def test_best_tree_is_the_best_of_all(seed):
    scores, sizes = random_scores(6, 6, seed), torch.arange(1, 7)
    for b, tree in enumerate(best_trees(scores, sizes)):
        weight = weights(scores[b], b + 1)
        assert tuple(map(tuple, tree.tolist())) == max(weight, key=weight.get)


def test_marginals_of_a_long_document_in_single_precision():
    scores, sizes = random_scores(1, 300).float(), torch.tensor([300])
    spans = span_marginals(inside(scores), sizes)
    assert_close(spans.sum().item(), 299.0, atol=1e-2, rtol=0)  # a tree has E - 1 nodes
    assert spans.min() >= 0 and spans.max() <= 1 + 1e-4
    kept = node_marginals(inside(scores), sizes, least=1e-6)
    assert kept.probability.min() > 1e-6 and len(kept.probability) < 300**3 / 6


def test_one_edu():
    sizes = torch.tensor([1])
    assert log_partition(torch.zeros(1, 1, 1), sizes).tolist() == [0]
    assert len(node_marginals(inside(torch.zeros(1, 1, 1)), sizes).start) == 0
    assert best_trees(torch.zeros(1, 1, 1), sizes)[0].shape == (0, 3)
