"""Bands, their bytes, the LDD of a tree, and random, permuted and other documents' LDDs, against plain loops."""

import random
from itertools import permutations

import pytest
import torch
from made_up_parses import made_up_document, made_up_parse, random_tree, to_band

from datamodules.discourse import ablations, distributions
from datamodules.discourse.ablations import OtherDiscourse, fit_to_size, permute_pairs
from datamodules.discourse.distributions import band_gamma, inside, to_dense, tree_gamma, tree_ldd
from datamodules.discourse.parses import ParseRequest
from datamodules.documents import UserError


def by_hand(tree: torch.Tensor, size: int, relations: int, rows: str, probability=None) -> torch.Tensor:
    """Return the LDD by a loop over pairs, with a search for the smallest node that contains both."""
    nodes = sorted(tree.tolist(), key=lambda node: node[2] - node[0])
    probability = torch.ones(len(nodes)) if probability is None else probability
    dense = torch.zeros(size, size, relations)
    for a, b in permutations(range(size), 2):
        lowest = next(node for node in nodes if node[0] <= min(a, b) and max(a, b) <= node[2])
        nucleus = ("NS", "SN", "NN")[lowest[3]][a > b] == "N"
        if rows == "nucleus":
            above = next(node for node in nodes if node[0] <= a <= node[2])
            nucleus = nucleus and ("NS", "SN", "NN")[above[3]][a > above[1]] == "N"
        dense[a, b, lowest[4]] = probability[tree.tolist().index(lowest)] * nucleus
    return dense


@pytest.mark.parametrize("rows", ["side", "nucleus"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 19])
def test_ldd_and_gamma_of_a_tree_equal_those_of_a_loop_over_pairs(size, rows):
    rng = random.Random(size)
    for _ in range(8):
        tree = random_tree(size, 4, rng)
        expected = by_hand(tree, size, 4, rows)
        assert torch.equal(to_dense(tree_ldd(tree, size, 4, rows)), expected)
        for band in (0, 1, 3, 30):
            assert torch.equal(tree_ldd(tree, size, 4, rows, band), to_band(expected, band))
        gamma = expected.sum((1, 2)) / size
        torch.testing.assert_close(tree_gamma(tree, size, rows), gamma)
        torch.testing.assert_close(band_gamma(to_band(expected, size)), gamma)
    probability = torch.rand(size - 1)
    weighted = by_hand(tree, size, 4, rows, probability)
    assert torch.equal(to_dense(tree_ldd(tree, size, 4, rows, probability=probability)), weighted)
    torch.testing.assert_close(tree_gamma(tree, size, rows, probability), weighted.sum((1, 2)) / size)


def test_gamma_of_a_narrow_band_is_a_mean_over_the_pairs_that_it_holds():
    band = torch.rand(5, 3, 2) * inside(5, 1).unsqueeze(-1)
    means = band.sum((1, 2)) / torch.tensor([1, 2, 2, 2, 1])
    torch.testing.assert_close(band_gamma(band), means * 4 / 5)


def test_rows_of_the_papers_example():
    """((EDU1) <-elaboration- (EDU2 -concession-> EDU3)): rows of EDU1 and EDU3 alone are filled."""
    elaboration, concession = 0, 1
    tree = torch.tensor([[0, 0, 2, 0, elaboration], [1, 1, 2, 1, concession]])
    for rows in ("side", "nucleus"):
        filled = to_dense(tree_ldd(tree, 3, 2, rows)).nonzero().tolist()
        assert filled == [[0, 1, elaboration], [0, 2, elaboration], [2, 1, concession]]


def test_invalid_trees_are_refused():
    for nodes, named in [
        ([[0, 0, 2, 0, 0]], "nodes"),
        ([[0, 0, 2, 0, 0], [0, 0, 1, 0, 0]], "no node covers EDUs 1 to 2, but one over EDUs 0 to 1"),
        ([[0, 2, 2, 0, 0], [0, 0, 1, 0, 0]], "node \\[0, 2, 2"),
        ([[0, 0, 2, 3, 0], [1, 1, 2, 0, 0]], "node \\[0, 0, 2, 3"),
        ([[0, 0, 2, 0, 5], [1, 1, 2, 0, 0]], "node \\[0, 0, 2, 0, 5"),
    ]:
        with pytest.raises(ValueError, match=named):
            distributions.check_tree(torch.tensor(nodes), 3, 2)


def test_band_and_dense_are_the_same_pairs():
    torch.manual_seed(0)
    dense = torch.rand(6, 6, 2)
    dense.diagonal().zero_()
    for half in (0, 2, 5, 9):
        band = to_band(dense, half)
        assert torch.equal(inside(6, half), to_band(torch.ones(6, 6, 1) - torch.eye(6)[..., None], half)[..., 0] > 0)
        assert torch.equal(distributions.resize(to_band(dense, 9), half), band)
        assert torch.equal(distributions.resize(band, 9)[:, 9 - half : 10 + half], band)
    assert torch.equal(to_dense(to_band(dense, 7)), dense)
    with pytest.raises(ValueError, match="all pairs of 6 EDUs"):
        to_dense(to_band(dense, 4))


def test_the_error_of_a_byte_is_as_stated():
    p = torch.cat([torch.linspace(0, 1, 100_001), torch.logspace(-9, 0, 10_000)]).double()
    error = (distributions.decode(distributions.encode(p)).double() - p).abs()
    assert (error <= p.sqrt() / 255 + 4e-6 + 1e-7).all()
    assert distributions.decode(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [0.0, 1.0]
    for value in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="probabilities"):
            distributions.encode(torch.tensor([0.5, value]))


def test_chance_is_the_same_for_every_document_and_band():
    wide, short = distributions.random_ldd(40, 20, 3), distributions.random_ldd(12, 5, 3)
    within = inside(12, 5)
    assert torch.equal(short[within], wide[:12, 15:26][within])
    assert not torch.equal(distributions.random_ldd(12, 5, 3, seed=1), short)
    values = wide[inside(40, 20)]
    assert values.min() >= 0 and values.max() < 1
    counts = torch.histc(values, 10, 0, 1)
    assert (counts / counts.sum() - 0.1).abs().max() < 0.02  # uniform: 0.1 +- 0.0042 a tenth, five deviations
    assert wide[:, 20].eq(0).all() and wide[~inside(40, 20)].eq(0).all()
    # neighbours know nothing of each other
    pairs = torch.stack([wide[:20, 21:40, 0].flatten(), wide[1:21, 21:40, 0].flatten()])
    assert torch.corrcoef(pairs)[0, 1].abs() < 0.2


def parse_of(number, sentences):
    return made_up_parse(ParseRequest.of(made_up_document(number, sentences)), half_width=40)


def codes_of(size, half):
    """A band of random bytes from 1 on, zero on the diagonal and outside the document."""
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(1, 256, (size, 2 * half + 1, 2), generator=generator, dtype=torch.uint8)
    return codes * inside(size, half).unsqueeze(-1)


def test_permuted_pairs_keep_their_relations_together_and_leave_their_places():
    codes = codes_of(9, 4)
    codes[:, :, 1] = 255 - codes[:, :, 0]  # the second value of a pair follows from the first
    permuted, pairs = permute_pairs(codes, 3), inside(9, 4)
    before, after = codes[pairs].tolist(), permuted[pairs].tolist()
    assert sorted(before) == sorted(after) and permuted[~pairs].eq(0).all()
    assert sum(one == other for one, other in zip(before, after)) < len(before) / 4
    assert torch.equal(permuted, permute_pairs(codes, 3)) and not torch.equal(permuted, permute_pairs(codes, 4))
    # values of EDUs that are not read do not come in
    codes = codes_of(9, 8)
    permuted, different = permute_pairs(codes[:5], 0), ~torch.eye(5, dtype=torch.bool)
    values = to_dense(permuted)[different]
    assert sorted(to_dense(codes)[:5, :5][different].tolist()) == sorted(values.tolist())
    assert values.sum() == permuted.sum()


@pytest.mark.parametrize("length, size, half", [(9, 5, 4), (9, 9, 8), (4, 9, 8), (4, 11, 3), (1, 6, 5), (12, 7, 2)])
def test_another_length_is_cut_or_stretched(length, size, half):
    stored = min(half, length - 1)
    codes = codes_of(length, stored)
    fitted = fit_to_size(codes, size, half)
    expected = torch.zeros(size, 2 * half + 1, 2, dtype=torch.uint8)
    for i, d in inside(size, half).nonzero().tolist():
        j = i + d - half
        a, b = (i, j) if length >= size else (i * length // size, j * length // size)
        expected[i, d] = codes[a, stored + b - a]
    assert torch.equal(fitted, expected)


def test_another_document_is_of_like_length_and_never_the_same_one():
    parses = [parse_of(number, sentences) for number, sentences in enumerate([3, 3, 5, 9, 2])]
    others = OtherDiscourse(40, 0, parses)
    for parse in parses:
        assert others.choose(parse, parse.size).text_digest != parse.text_digest
    largest = max(parse.size for parse in parses)
    for seed in range(20):
        chosen = OtherDiscourse(40, seed, parses).choose(parses[0], 9)
        assert chosen.size >= 9  # where there is one that long, nothing is stretched
        assert OtherDiscourse(40, seed, parses[::-1]).choose(parses[0], 9).id == chosen.id
    assert others.codes(parses[0], largest + 3).shape[0] == largest + 3
    assert len({OtherDiscourse(40, seed, parses).choose(parses[0], 2).id for seed in range(40)}) == 4
    with pytest.raises(UserError, match="fewer than two different training documents have any: give more"):
        OtherDiscourse(40, 0, [parses[0], parse_of(0, 3)])
    assert ablations.evenly_spread({f"k{n}": n * n for n in range(100)}, 4) == ["k0", "k33", "k66", "k99"]
