import math
from itertools import combinations

import pytest
import torch
from torch.testing import assert_close

from lightning_modules.discourse_parser import chart
from lightning_modules.discourse_parser.chart import Chart, Potentials, all_marginals, node_marginals, span_marginals
from lightning_modules.discourse_parser.ldd import LabelClasses, discourse_distribution, extract_band
from tests.lightning_modules.discourse_parser.brute_trees import RELATION, SIDES, distribution, labelled, trees
from tests.made_up_parses import to_band

DEPTH = 3
CLASSES = LabelClasses.of(SIDES, RELATION, 2)


def random_potentials(batch, size, seed=0, fitted=True):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, size, size), *[(batch, size, size, DEPTH)] * 2]
    spans, *fits = (torch.randn(shape, generator=generator, dtype=torch.double) for shape in shapes)
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
    return {tree: math.exp(sum(score(potentials, b, node).item() for node in tree)) for tree in trees(0, size - 1)}


@pytest.mark.parametrize("fitted", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_partition_marginals_and_best_tree_equal_enumeration_in_a_padded_batch(seed, fitted):
    potentials, sizes = random_potentials(6, 6, seed, fitted), torch.arange(1, 7)
    marginals, best = all_marginals(potentials, sizes), chart.best_trees(potentials, sizes)
    spans, nodes = span_marginals(potentials, marginals), node_marginals(potentials, marginals)
    table = torch.zeros(6, 6, 6, 6, dtype=torch.double)
    table[nodes.document, nodes.start, nodes.split, nodes.end] = nodes.probability
    for b, size in enumerate(sizes.tolist()):
        weight = weights(potentials, b, size)
        total = sum(weight.values())
        assert_close(chart.log_partition(potentials, sizes)[b].item(), math.log(total), atol=1e-9, rtol=0)
        assert tuple(map(tuple, best[b].tolist())) == max(weight, key=weight.get)
        expected = torch.zeros(6, 6, 6, dtype=torch.double)
        for tree, w in weight.items():
            for node in tree:
                expected[node] += w / total
        assert_close(table[b], expected, atol=1e-9, rtol=0)
        assert_close(spans[b], expected.sum(1), atol=1e-9, rtol=0)


def test_gradient_of_the_partition_equals_finite_differences():
    potentials, sizes = random_potentials(3, 9), torch.tensor([9, 4, 1])
    tensors = [tensor.requires_grad_() for tensor in (potentials.spans, *potentials.fits)]
    assert torch.autograd.gradcheck(lambda s, u, v: chart.log_partition(Potentials(s, Chart(u, v)), sizes), tensors)


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
    nodes, best = node_marginals(potentials, marginals), chart.most_probable_splits(potentials, marginals)
    table = torch.zeros(2, 8, 8, 8, dtype=torch.double)
    table[nodes.document, nodes.start, nodes.end, nodes.split] = nodes.probability
    for b, size in enumerate(sizes.tolist()):
        for i, j in combinations(range(size), 2):
            assert best[b, i, j] == table[b, i, j].argmax()


@pytest.mark.parametrize("rows", ["side", "nucleus"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_equals_the_sum_over_all_labelled_trees(size, rows):
    potentials = random_potentials(1, size, seed=size, fitted=False)
    nodes = node_marginals(potentials, all_marginals(potentials, torch.tensor([size])))
    labels = torch.randn(len(nodes.start), 3, dtype=torch.double).mul(2).softmax(-1)
    place = {node: n for n, node in enumerate(zip(*(column.tolist() for column in nodes[1:4])))}
    weight, weighted = weights(potentials, 0, size), []
    for tree, w in weight.items():
        for chosen in labelled(tree, 3):
            chance = math.prod(labels[place[node], c].item() for node, c in zip(tree, chosen))
            weighted.append((w / sum(weight.values()) * chance, tree, chosen))
    p = discourse_distribution(nodes, labels, CLASSES, size, rows)
    assert_close(p, distribution(weighted, size, rows), atol=1e-9, rtol=0)


def test_the_example_of_the_paper_and_a_band():
    # ((EDU1) <-elaboration- (EDU2 -concession-> EDU3))
    starts, splits, ends = torch.tensor([[0, 1], [0, 1], [2, 2]])
    nodes = chart.SplitPosterior(torch.zeros_like(starts), starts, splits, ends, torch.ones(2))
    p = discourse_distribution(nodes, torch.nn.functional.one_hot(torch.tensor([0, 1]), 3), CLASSES, 3)
    expected = torch.zeros(3, 3, 2, dtype=torch.double)
    expected[0, 1, 0] = expected[0, 2, 0] = expected[2, 1, 1] = 1
    assert p.equal(expected)
    dense = torch.rand(7, 7, 2)
    assert extract_band(dense, 3).equal(to_band(dense, 3))
