import math

import pytest
import torch
from torch.testing import assert_close

from lightning_modules.discourse_parser.chart import (
    Chart,
    Potentials,
    all_marginals,
    best_trees,
    log_partition,
    most_probable_splits,
    node_marginals,
    span_marginals,
)
from tests.lightning_modules.discourse_parser.brute_trees import trees

DEPTH = 3


def random_potentials(batch, size, seed=0, fitted=True):
    generator = torch.Generator().manual_seed(seed)
    spans, *fits = (
        torch.randn(batch, size, size, *shape, generator=generator, dtype=torch.double)
        for shape in ([], [DEPTH], [DEPTH])
    )
    return Potentials(2 * spans, Chart(*fits) if fitted else None)


def score(potentials, b, node):
    """s(i, j) + u(i, k) . v(k + 1, j), looked up where charts file it."""
    i, k, j = node
    total = potentials.spans[b, i, j]
    if potentials.fits is not None:
        size = potentials.spans.shape[1]
        u, v = potentials.fits.left[b, i, k - i], potentials.fits.right[b, j, size - 1 - (j - k - 1)]
        total = total + u @ v
    return total


def weights(potentials, b, size):
    """exp(score) of every tree of one document."""
    return {tree: math.exp(sum(score(potentials, b, node).item() for node in tree)) for tree in trees(0, size - 1)}


@pytest.mark.parametrize("fitted", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_partition_and_marginals_equal_enumeration_in_a_padded_batch(seed, fitted):
    potentials, sizes = random_potentials(6, 6, seed, fitted), torch.arange(1, 7)
    marginals = all_marginals(potentials, sizes)
    spans, nodes = span_marginals(potentials, marginals), node_marginals(potentials, marginals)
    table = torch.zeros(6, 6, 6, 6, dtype=torch.double)
    table[nodes.document, nodes.start, nodes.split, nodes.end] = nodes.probability
    for b, size in enumerate(sizes.tolist()):
        weight = weights(potentials, b, size)
        total = sum(weight.values())
        assert_close(log_partition(potentials, sizes)[b].item(), math.log(total), atol=1e-9, rtol=0)
        expected = torch.zeros(6, 6, 6, dtype=torch.double)
        for tree, w in weight.items():
            for node in tree:
                expected[node] += w / total
        assert_close(table[b], expected, atol=1e-9, rtol=0)
        assert_close(spans[b], expected.sum(1), atol=1e-9, rtol=0)


def test_gradient_of_the_partition_equals_finite_differences():
    potentials, sizes = random_potentials(3, 9), torch.tensor([9, 4, 1])
    tensors = [tensor.requires_grad_() for tensor in (potentials.spans, *potentials.fits)]
    assert torch.autograd.gradcheck(lambda s, u, v: log_partition(Potentials(s, Chart(u, v)), sizes), tensors)


@pytest.mark.parametrize("fitted", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_best_tree_is_the_best_of_all(seed, fitted):
    potentials, sizes = random_potentials(6, 6, seed, fitted), torch.arange(1, 7)
    for b, tree in enumerate(best_trees(potentials, sizes)):
        weight = weights(potentials, b, b + 1)
        assert tuple(map(tuple, tree.tolist())) == max(weight, key=weight.get)


def test_marginals_of_a_long_document_in_single_precision():
    potentials, sizes = Potentials(random_potentials(1, 300).spans.float()), torch.tensor([300])
    marginals = all_marginals(potentials, sizes)
    spans = span_marginals(potentials, marginals)
    assert_close(spans.sum().item(), 299.0, atol=1e-2, rtol=0)  # a tree has E - 1 nodes
    assert spans.min() >= 0 and spans.max() <= 1 + 1e-4
    probable = node_marginals(potentials, marginals, min_prob=1e-6)
    assert probable.probability.min() > 1e-6 and len(probable.probability) < 300**3 / 6


def test_most_probable_splits_equal_those_of_the_best_marginals():
    potentials, sizes = random_potentials(2, 8), torch.tensor([8, 6])
    marginals = all_marginals(potentials, sizes)
    nodes, best = node_marginals(potentials, marginals), most_probable_splits(potentials, marginals)
    table = torch.zeros(2, 8, 8, 8, dtype=torch.double)
    table[nodes.document, nodes.start, nodes.end, nodes.split] = nodes.probability
    for b, size in enumerate(sizes.tolist()):
        for i in range(size):
            for j in range(i + 1, size):
                assert best[b, i, j] == table[b, i, j].argmax()
