import math
from itertools import chain, combinations, combinations_with_replacement, product

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from lightning_modules.discourse_parser import chart, discourse_charts, ldd
from lightning_modules.discourse_parser.chart import Potentials, all_marginals, node_marginals, span_marginals
from lightning_modules.discourse_parser.discourse_charts import ChartReader, chunk_bounds, document_ldd, document_tree
from lightning_modules.discourse_parser.ldd import LabelClasses, extract_band, nucleus_distribution, side_distribution
from lightning_modules.discourse_parser.span_scorer import DiscourseScorer, Layout, Units, node_scores, pool_edus
from tests.lightning_modules.discourse_parser.brute_trees import RELATION, SIDES, distribution, trees
from tests.made_up_parses import to_band

CLASSES = LabelClasses.of(SIDES, RELATION, 2)


def layout_of(*sizes: int) -> Layout:
    place = torch.arange(max(sizes)).expand(len(sizes), -1)
    return Layout(place // 2, place // 5, torch.full_like(place, 4), torch.tensor(sizes))


def reader_with(members: int, **options) -> ChartReader:
    torch.manual_seed(0)
    scorers = nn.ModuleList(DiscourseScorer(6, 8, classes=3, fit_size=2) for _ in range(members)).eval()
    for scorer in scorers:
        for head in (scorer.span_score, scorer.class_score):
            nn.init.normal_(head[-1].weight, std=2.0)  # scores that differ
    return ChartReader(scorers, CLASSES, **options)


@pytest.mark.parametrize("size, cap", [(5, 10), (10, 10), (11, 10), (64, 10), (1000, 7), (9, 2)])
def test_chunks_cover_a_text_and_keep_to_the_cap_and_to_paragraphs_or_sentences(size, cap):
    place = torch.arange(size)
    chunks = chunk_bounds(place // 2, place // 5, size, cap)
    assert [at for start, end in chunks for at in range(start, end)] == list(range(size))
    assert all(0 < end - start <= cap for start, end in chunks) and (len(chunks) == 1) == (size <= cap)
    place = torch.arange(60)
    assert {start for start, _ in chunk_bounds(place // 4, place // 12, 60, 30)} <= set(range(0, 60, 12))
    assert {start for start, _ in chunk_bounds(place // 4, place * 0, 60, 30)} <= set(range(0, 60, 4))


def members_by_hand(reader: ChartReader, vectors, layout, units: Units) -> list[list[tuple]]:
    """Of each scorer, every labelled tree over the units of one chart: probability, nodes and their classes."""
    members = []
    for scorer in reader.scorers:
        tables = scorer.tables(vectors, layout)
        potentials = scorer.potentials(tables, layout, units)
        every = []
        for nodes in trees(0, int(units.sizes[0]) - 1):
            columns = torch.tensor(nodes, dtype=torch.long).view(-1, 3).T
            zeros = torch.zeros(len(nodes), dtype=torch.long)
            score = node_scores(potentials, zeros, *columns).sum().exp().item()
            places = units.start[0][columns[0]], units.end[0][columns[1]], units.end[0][columns[2]]
            probs = (scorer.class_logits(tables, layout, zeros, *places) / reader.temperature).softmax(-1).tolist()
            for classes in product(range(3), repeat=len(nodes)):
                every.append((score * math.prod(probs[n][c] for n, c in enumerate(classes)), nodes, classes))
        total = sum(weight for weight, *_ in every)
        members.append([(weight / total, nodes, classes) for weight, nodes, classes in every])
    return members


def units_of(bounds: list[tuple[int, int]]) -> Units:
    starts, ends = (torch.tensor([column]) for column in zip(*bounds))
    return Units(torch.tensor([0]), starts, ends, torch.tensor([len(bounds)]))


@pytest.mark.parametrize("chunks", [[(0, 5)], [(0, 2), (2, 3), (3, 5)]], ids=["whole", "chunks"])
@pytest.mark.parametrize("rows, batch_size", [("side", 5), ("nucleus", 65_536)])
def test_a_mixture_equals_the_sum_over_all_labelled_trees_of_its_members(chunks, rows, batch_size, monkeypatch):
    monkeypatch.setitem(discourse_charts._NODES, "cpu", batch_size)
    monkeypatch.setattr(ldd, "_WIDTHS", 2)  # two blocks of widths
    reader, layout, vectors = reader_with(2, temperature=0.5), layout_of(5), torch.randn(1, 5, 6)
    (charts,) = reader.compute_charts(vectors, layout, [chunks])
    bounds = [[(i, i) for i in range(start, end)] for start, end in chunks]
    bounds.append([(start, end - 1) for start, end in chunks])
    by_chart = [members_by_hand(reader, vectors, layout, units_of(units)) for units in bounds]
    expected = 0
    for member in range(2):
        every = []
        for drawn in product(*(members[member] for members in by_chart)):
            nodes, classes = [], []
            for units, (_, own, own_classes) in zip(bounds, drawn):
                nodes += [(units[i][0], units[k][1], units[j][1]) for i, k, j in own]
                classes += own_classes
            every.append((math.prod(chance for chance, *_ in drawn), nodes, classes))
        expected = expected + distribution(every, 5, rows) / 2
    for half_width in (4, 1):
        found = document_ldd(charts, CLASSES, half_width, rows)
        assert_close(found.band, to_band(expected, half_width), atol=1e-6, rtol=0, check_dtype=False)
        assert_close(found.gamma, expected.sum((1, 2)) / 5, atol=1e-6, rtol=0, check_dtype=False)  # of all pairs


def labelled_nodes(nodes: list[tuple], classes: list[int]) -> list[tuple]:
    return [(start, end, SIDES[c], RELATION[c]) for (start, _, end), c in zip(nodes, classes)]


def expected_correct(members: list[list[tuple]], tree: list[tuple]) -> float:
    """Expected number of correct spans, nuclearities, relations and both, summed over all trees of all members."""
    total = 0.0
    for chance, nodes, classes in chain(*members):
        other = labelled_nodes(nodes, classes)
        for kind in ((), (2,), (3,), (2, 3)):
            ours, theirs = ({(n[0], n[1], *(n[i] for i in kind)) for n in one} for one in (tree, other))
            total += chance / len(members) * len(ours & theirs)
    return total


@pytest.mark.parametrize("seed", range(3))
def test_mbr_has_the_highest_expected_number_of_correct_spans_and_labels(seed):
    reader, layout = reader_with(2, temperature=0.5), layout_of(4)
    vectors = torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(seed))
    members = members_by_hand(reader, vectors, layout, units_of([(i, i) for i in range(4)]))
    every = [labelled_nodes(nodes, classes) for _, nodes, classes in members[0]]
    values = {tuple(sorted(tree)): expected_correct(members, tree) for tree in every}
    for with_nodes in (True, False):
        (charts,) = reader.compute_charts(vectors, layout, [[(0, 4)]], with_nodes=with_nodes)
        nodes = document_tree(charts, CLASSES).tolist()
        tree = sorted((start, end, SIDES[side], relation) for start, _, end, side, relation in nodes)
        # nodes of probability 1e-3 or less are left out, so that a tree may lack that much
        assert max(values.values()) - values[tuple(tree)] < 0.01
    assert reader_with(1, decoding="cky").compute_charts(torch.randn(1, 5, 6), layout_of(5), [[(0, 5)]])
    with pytest.raises(ValueError, match="cky needs one scorer, there are 2"):
        reader_with(2, decoding="cky")
    with pytest.raises(ValueError, match="'best' is none of mbr, mbr_spans, cky"):
        reader_with(1, decoding="best")


def flags(unit: list[int], i: int, j: int) -> list[bool]:
    """The sheet's boundary flags of a span, by looking."""
    begins = i == 0 or unit[i - 1] != unit[i]
    ends = j == len(unit) - 1 or unit[j + 1] != unit[j]
    several = unit[i] != unit[j]
    return [begins, ends, begins and ends, several, several and not begins, several and not ends]


@pytest.mark.parametrize("size", [7, 4, 1])
def test_layout_of_spans_is_what_one_sees(size):
    layout = layout_of(7, size)
    sentences, paragraphs = layout.sentence[1, :size].tolist(), layout.paragraph[1, :size].tolist()
    for i, j in combinations_with_replacement(range(size), 2):
        features = layout.of_spans(*(torch.tensor([n]) for n in (1, i, j)))[0]
        expected = [*flags(sentences, i, j), *flags(paragraphs, i, j), i == 0, j == size - 1, (j - i + 1) / size]
        assert_close(features[[*range(6), *range(7, 13), 14, 15, 17]], torch.tensor(expected, dtype=torch.float))
    edus = layout.of_edus()[1, :size]
    for e in range(size):
        assert edus[e, :4].tolist() == [*flags(sentences, e, e)[:2], *flags(paragraphs, e, e)[:2]]


def test_units_get_the_scores_of_the_same_spans_and_pooled_vectors_are_first_last_and_mean():
    tokens, edus = torch.randn(7, 2), torch.tensor([-1, 0, 0, 0, 2, 2, -1])
    pooled = pool_edus(tokens, edus, 4)
    assert_close(pooled[0], torch.cat([tokens[1], tokens[3], tokens[1:4].mean(0)]))
    assert_close(pooled[2], torch.cat([tokens[4], tokens[5], tokens[4:6].mean(0)]))
    assert pooled[[1, 3]].eq(0).all()
    torch.manual_seed(0)
    scorer, layout = DiscourseScorer(5, 8, classes=4, fit_size=3).eval(), layout_of(7)
    tables = scorer.tables(torch.randn(1, 7, 5), layout)
    whole = scorer.potentials(tables, layout, Units.edus(layout))
    runs = [(0, 1), (2, 4), (5, 6)]
    over = scorer.potentials(tables, layout, units_of(runs))
    for i, k, j in [(0, 0, 1), (0, 1, 2), (1, 1, 2)]:
        units = (torch.tensor([n]) for n in (0, i, k, j))
        edus = (torch.tensor([n]) for n in (0, runs[i][0], runs[k][1], runs[j][1]))
        assert_close(node_scores(over, *units), node_scores(whole, *edus))


def random_potentials(batch, size, seed=0, fitted=True):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, size, size), *[(batch, size, size, 3)] * 2]
    spans, *fits = (torch.randn(shape, generator=generator, dtype=torch.double) for shape in shapes)
    return Potentials(2 * spans, tuple(fits) if fitted else None)


def node_score(potentials, b, node):
    """s(i, j) + u(i, k) . v(k + 1, j), looked up where charts file it."""
    i, k, j = node
    total = potentials.spans[b, i, j]
    if potentials.fits is not None:
        u, v = potentials.fits
        total = total + u[b, k, i] @ v[b, k, j]
    return total


def weights(potentials, b, size):
    return {tree: math.exp(sum(node_score(potentials, b, node).item() for node in tree)) for tree in trees(0, size - 1)}


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


def test_the_gradient_of_the_partition_and_marginals_of_a_long_document():
    potentials, sizes = random_potentials(3, 9), torch.tensor([9, 4, 1])
    tensors = [tensor.requires_grad_() for tensor in (potentials.spans, *potentials.fits)]
    assert torch.autograd.gradcheck(lambda s, u, v: chart.log_partition(Potentials(s, (u, v)), sizes), tensors)
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
        for chosen in product(range(3), repeat=len(tree)):
            chance = math.prod(labels[place[node], c].item() for node, c in zip(tree, chosen))
            weighted.append((w / sum(weight.values()) * chance, tree, chosen))
    of_side = side_distribution(torch.zeros(size, size, 4), nodes, labels, CLASSES)
    p = of_side if rows == "side" else nucleus_distribution(nodes, labels, CLASSES, size)
    assert_close(p, distribution(weighted, size, rows), atol=1e-9, rtol=0)
    assert extract_band(p, 2).equal(to_band(p, 2))
