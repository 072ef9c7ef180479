import math

import pytest
import torch
from torch.testing import assert_close

from lightning_modules.discourse_parser.chart import Potentials, SplitPosterior, all_marginals, node_marginals
from lightning_modules.discourse_parser.ldd import (
    LabelClasses,
    discourse_distribution,
    extract_band,
    side_distribution,
    span_masses,
)
from tests.lightning_modules.discourse_parser.brute_trees import RELATION, SIDES, distribution, labelled, trees
from tests.made_up_parses import to_band

CLASSES = LabelClasses.of(SIDES, RELATION, 2)


def posterior(size, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(1, size, size, generator=generator, dtype=torch.double)
    potentials = Potentials(scores)
    nodes = node_marginals(potentials, all_marginals(potentials, torch.tensor([size])))
    labels = torch.randn(len(nodes.start), 3, generator=generator, dtype=torch.double).mul(2).softmax(-1)
    return scores[0], nodes, labels


def brute_force(size, scores, nodes, labels, rows):
    """Sums over all labelled trees; classes depend on start, split and end of a node."""
    place = {node: n for n, node in enumerate(zip(*(column.tolist() for column in nodes[1:4])))}
    weight = {tree: math.exp(sum(scores[i, j].item() for i, _, j in tree)) for tree in trees(0, size - 1)}
    weighted = []
    for tree, w in weight.items():
        for chosen in labelled(tree, 3):
            chance = math.prod(labels[place[node], c].item() for node, c in zip(tree, chosen))
            weighted.append((w / sum(weight.values()) * chance, tree, chosen))
    return distribution(weighted, size, rows)


@pytest.mark.parametrize("rows", ["side", "nucleus"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_equals_the_sum_over_all_labelled_trees(size, rows):
    scores, nodes, labels = posterior(size, seed=size)
    p = discourse_distribution(nodes, labels, CLASSES, size, rows)
    assert_close(p, brute_force(size, scores, nodes, labels, rows), atol=1e-9, rtol=0)


def test_the_example_of_the_paper():
    # ((EDU1) <-elaboration- (EDU2 -concession-> EDU3))
    starts, splits, ends = torch.tensor([[0, 1], [0, 1], [2, 2]])
    nodes = SplitPosterior(torch.zeros_like(starts), starts, splits, ends, torch.ones(2))
    p = discourse_distribution(nodes, torch.nn.functional.one_hot(torch.tensor([0, 1]), 3), CLASSES, 3)
    expected = torch.zeros(3, 3, 2, dtype=torch.double)
    expected[0, 1, 0] = expected[0, 2, 0] = expected[2, 1, 1] = 1
    assert p.equal(expected)


def test_band_of_a_whole_document():
    dense = torch.rand(7, 7, 2)
    assert extract_band(dense, 3).equal(to_band(dense, 3))


def span_labels(size, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, size, 3, generator=generator, dtype=torch.double).mul(2).softmax(-1)


@pytest.mark.parametrize("size", [1, 2, 5, 12])
def test_labels_of_spans_need_no_list_of_nodes(size):
    scores, nodes, own = posterior(size, seed=size)
    labels = span_labels(size, size)
    table = torch.cat([CLASSES.restricted(labels.flatten(0, 1), side) for side in (CLASSES.left, CLASSES.right)], 1)
    potentials = Potentials(scores[None])
    marginals = all_marginals(potentials, torch.tensor([size]))
    masses = span_masses(potentials, marginals, table.view(1, size, size, 4))[0]
    of_spans = labels[nodes.start, nodes.end]
    none = SplitPosterior(*(column[:0] for column in nodes))
    assert_close(
        side_distribution(masses, none, own[:0], CLASSES), discourse_distribution(nodes, of_spans, CLASSES, size)
    )
    # the likeliest third of the nodes with labels of their own, the others with those of their spans
    some = nodes.probability >= nodes.probability.quantile(2 / 3) if len(own) else torch.zeros(0, dtype=torch.bool)
    mixed = torch.where(some.unsqueeze(1), own, of_spans)
    chosen = SplitPosterior(*(column[some] for column in nodes))
    assert_close(
        side_distribution(masses, chosen, (own - of_spans)[some], CLASSES),
        discourse_distribution(nodes, mixed, CLASSES, size),
    )
