"""Random, permuted and other documents' discourse against plain loops."""

import pytest
import torch

from datamodules.discourse import ablations
from datamodules.discourse.ablations import OtherDiscourse, RandomDiscourse, fit_to_size, permute_pairs
from datamodules.discourse.distributions import encode, random_ldd
from datamodules.discourse.parses import ParseRequest
from datamodules.documents import UserError
from tests.made_up_parses import made_up_document, made_up_parse


def parse_of(number, sentences, half_width=40):
    return made_up_parse(ParseRequest.of(made_up_document(number, sentences)), half_width)


def codes_of(size, half, relations=2, seed=0):
    """A band of random bytes from 1 on, zero on the diagonal and outside the document."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(1, 256, (size, 2 * half + 1, relations), generator=generator, dtype=torch.uint8)
    for i in range(size):
        for d in range(-half, half + 1):
            if d == 0 or not 0 <= i + d < size:
                codes[i, half + d] = 0
    return codes


def test_the_random_table_gives_what_is_hashed_again_and_is_computed_once(monkeypatch):
    discourse = RandomDiscourse(6, seed=5)
    for sentences in (2, 60, 5, 1, 90):  # growing and not
        parse = parse_of(0, sentences)
        half = min(6, parse.size - 1)
        expected = encode(random_ldd(parse.size, half, 3, 5))
        assert torch.equal(discourse.codes(parse, parse.size), expected)
    monkeypatch.setattr("datamodules.discourse.ablations.random_ldd", None)
    assert torch.equal(discourse.codes(parse, 3), expected[:3])


def test_permuted_pairs_keep_their_relations_together_and_leave_their_places():
    codes = codes_of(9, 4)
    codes[:, :, 1] = 255 - codes[:, :, 0]  # the second value of a pair follows from the first
    permuted = permute_pairs(codes, 3)
    pairs = [(i, d) for i in range(9) for d in range(-4, 5) if d and 0 <= i + d < 9]
    before, after = ([tuple(band[i, 4 + d].tolist()) for i, d in pairs] for band in (codes, permuted))
    assert sorted(before) == sorted(after)
    assert sum(one == other for one, other in zip(before, after)) < len(pairs) / 4
    others = [(i, d) for i in range(9) for d in range(-4, 5) if (i, d) not in pairs]
    assert all(permuted[i, 4 + d].eq(0).all() for i, d in others)
    assert torch.equal(permuted, permute_pairs(codes, 3)) and not torch.equal(permuted, permute_pairs(codes, 4))


def test_values_of_edus_that_are_not_read_do_not_come_in():
    codes = codes_of(9, 8)
    permuted = permute_pairs(codes[:5], 0)
    inside = [codes[i, 8 + j - i].tolist() for i in range(5) for j in range(5) if i != j]
    found = [permuted[i, 8 + j - i].tolist() for i in range(5) for j in range(5) if i != j]
    assert sorted(inside) == sorted(found) and sum(map(sum, found)) == int(permuted.sum())


@pytest.mark.parametrize("length, size, half", [(9, 5, 4), (9, 9, 8), (4, 9, 8), (4, 11, 3), (1, 6, 5), (12, 7, 2)])
def test_another_length_is_cut_or_stretched(length, size, half):
    stored = min(half, length - 1)
    codes = codes_of(length, stored)
    fitted = fit_to_size(codes, size, half)
    assert fitted.shape == (size, 2 * half + 1, 2)
    for i in range(size):
        for d in range(-half, half + 1):
            j = i + d
            wanted = torch.zeros(2, dtype=torch.uint8)
            if d and 0 <= j < size:
                a, b = (i, j) if length >= size else (i * length // size, j * length // size)
                wanted = codes[a, stored + b - a]
            assert torch.equal(fitted[i, half + d], wanted), (i, d)


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
    for alone in (parses[:1], [parses[0], parse_of(0, 3)]):
        with pytest.raises(UserError, match="fewer than two different training documents have any: give more"):
            OtherDiscourse(40, 0, alone)


def test_seeds_depend_on_text_and_seed_and_sizes_are_evenly_spread():
    seeds = {ablations.document_seed(seed, text) for seed in range(5) for text in ("a", "b", "1 a")}
    assert len(seeds) == 15 and min(seeds) >= 0 and max(seeds) < 2**63
    sizes = {f"k{n}": n * n for n in range(100)}
    keys = ablations.evenly_spread(sizes, 4)
    assert keys == ["k0", "k33", "k66", "k99"]
    assert ablations.evenly_spread(sizes, 200) == sorted(sizes, key=lambda key: sizes[key])
