"""Requests, parses, their bands and variants, and tokens to EDUs."""

import random
from itertools import pairwise

import pytest
import torch
from made_up_parses import RELATIONS, made_up_document, made_up_parse, random_tree, to_band

from datamodules.discourse.distributions import inside
from datamodules.discourse.parses import DiscourseParse, ParseRequest, align, text_digest
from datamodules.documents import Document

ODD = "Ａ naïve 😀😀 cafe\u0301 …  said\u00a0“no”, then 🏳️‍🌈 left;\n\nשלום, she said, 𝔴hen it ended.\u2028Done \ufffd."


def whole(text: str) -> ParseRequest:
    return ParseRequest("odd", text, ((0, len(text)),), ((0, len(text)),))


def parse_of(text: str, edus: list[tuple[int, int]]) -> DiscourseParse:
    tree = random_tree(max(1, len(edus)), 3, random.Random(0))
    band = torch.rand(len(edus), 7, 3)  # three EDUs to each side
    return DiscourseParse.of(whole(text), edus, RELATIONS, tree, band, gamma=torch.rand(len(edus)))


def test_a_request_knows_sentences_and_paragraphs():
    document = Document("d", [["One.", "Two 😀."], [], ["Three."], ["Four.", "Five."]])
    request = ParseRequest.of(document)
    assert [request.text[a:b] for a, b in request.sentences] == document.sentences
    assert [request.text[a:b] for a, b in request.paragraphs] == [" ".join(part) for part in document.parts]
    assert request.edus is None and not request.empty
    assert ParseRequest.of(document, edus=torch.tensor([[0, 4]])).edus == ((0, 4),)
    assert ParseRequest.of(Document("e", [])).empty and ParseRequest.of(Document("e", [[" "]])).empty
    hash(request)  # frozen, through and through


def test_a_parse_keeps_what_it_was_given():
    request = ParseRequest.of(made_up_document(1))
    parse = made_up_parse(request)
    assert parse.size == 6 and parse.half_width == 5 and parse.ldd.dtype == torch.uint8
    assert parse.text_digest == text_digest(request.text)
    for start, end in parse.edus.tolist():
        assert request.text[start:end] == request.text[start:end].strip() != ""
    assert parse.edus.dtype == parse.tree.dtype == torch.int32
    band = torch.rand(6, 7, 3)
    parse = DiscourseParse.of(request, parse.edus, RELATIONS, parse.tree, band, gamma=parse.gamma)
    stored = parse.band(3)
    within = inside(6, 3)
    assert (stored[within] - band[within]).abs().max() < 1 / 255 and stored[~within].eq(0).all()
    parse = parse_of("  word ", [(0, 7)])  # one EDU
    assert parse.edus.tolist() == [[2, 6]] and parse.tree.shape == (0, 5)
    assert parse.band(2).shape == (1, 5, 3) and parse.band(2).eq(0).all()
    assert parse.dense().shape == (1, 1, 3)


def test_a_wider_band_than_is_stored_is_refused():
    parse = parse_of("a b c d e f g", [(i, i + 1) for i in range(0, 13, 2)])
    assert torch.equal(parse.band(2), parse.band(3)[:, 1:6])
    with pytest.raises(ValueError, match="document 'odd': 4 EDUs to each side are needed, but its parse has only 3"):
        parse.band(4)
    with pytest.raises(ValueError, match="6 EDUs"):
        parse.dense()
    # a band that holds every pair may be filled up as far as one likes
    whole_parse = parse_of("a b c", [(0, 1), (2, 3), (4, 5)])
    assert whole_parse.half_width == 2 and whole_parse.band(50).shape == (3, 101, 3)
    dense = whole_parse.dense()
    assert dense.shape == (3, 3, 3) and dense.diagonal().eq(0).all()
    assert dense[0, 2].equal(whole_parse.band(2)[0, 4]) and dense[2, 0].equal(whole_parse.band(2)[2, 0])


def test_gamma_is_taken_from_a_band_of_all_pairs_and_given_with_a_narrower_one():
    request = ParseRequest.of(made_up_document(1))
    edus, tree = made_up_parse(request).edus, made_up_parse(request).tree
    dense = torch.rand(6, 6, 3)
    wide, expected = to_band(dense, 5), (dense.sum(2).fill_diagonal_(0).sum(1) / 6).tolist()  # the diagonal is not read
    assert DiscourseParse.of(request, edus, RELATIONS, tree, wide).gamma.tolist() == pytest.approx(expected)
    narrow = wide[:, 3:8]
    given = DiscourseParse.of(request, edus, RELATIONS, tree, narrow, gamma=torch.tensor(expected).double())
    assert given.gamma.tolist() == pytest.approx(expected) and given.gamma.dtype == torch.float32
    with pytest.raises(ValueError, match="does not include every pair of EDUs, so gamma must be given"):
        DiscourseParse.of(request, edus, RELATIONS, tree, narrow)
    for wrong in (torch.rand(5), -torch.rand(6), torch.full((6,), float("nan"))):
        with pytest.raises(ValueError, match="gamma must be a non-negative number for each of 6 EDUs"):
            DiscourseParse.of(request, edus, RELATIONS, tree, narrow, gamma=wrong)


def test_edus_that_are_none_are_refused_by_document():
    for edus, problem in [
        ([], "there is no EDU"),
        ([(0, 3), (2, 5)], r"EDU \[2, 5\) is empty, overlaps"),
        ([(0, 3), (3, 3)], r"EDU \[3, 3\) is empty"),
        ([(0, 3), (3, 99)], r"EDU \[3, 99\) .*text at 9"),
        ([(0, 3), (3, 4)], "only whitespace"),
    ]:
        with pytest.raises(ValueError, match=f"document 'odd': .*{problem}"):
            parse_of("one two x", edus)


def test_values_outside_the_document_do_not_matter_and_others_do():
    arguments, tree = (whole("a b"), [(0, 1), (2, 3)], RELATIONS), torch.tensor([[0, 0, 1, 2, 0]])
    band = torch.full((2, 3, 3), float("nan"))
    band[0, 2], band[1, 0] = 0.25, 0.5
    parse = DiscourseParse.of(*arguments, tree, band)
    torch.testing.assert_close(parse.dense()[0, 1], torch.full((3,), 0.25), atol=0.003, rtol=0)
    band[0, 2, 1] = float("nan")
    for nodes, values, problem in (
        (tree, band, r"document 'odd'.*probabilities"),
        (tree, torch.rand(2, 4, 3), r"band of its LDD is \[2, 4, 3\]"),
        (tree[:0], torch.rand(2, 3, 3), "binary tree over 2 EDUs"),
    ):
        with pytest.raises(ValueError, match=problem):
            DiscourseParse.of(*arguments, nodes, values)


def cuts(rng: random.Random, number: int) -> list[tuple[int, int]]:
    return list(pairwise([0, *sorted(rng.sample(range(1, len(ODD)), number)), len(ODD)]))


def by_hand(offsets: list[tuple[int, int]], edus: list[list[int]]) -> list[int]:
    """Return, by a loop over characters, the EDU of the first character of a token that is in an EDU."""
    found = []
    for start, end in offsets:
        holders = [e for c in range(start, end) for e, (a, b) in enumerate(edus) if a <= c < b]
        found.append(holders[0] if holders else -1)
    return found


def test_tokens_go_to_the_edu_of_their_first_character():
    """EDUs and tokens are cut anywhere, in each other too; some text is in no EDU, some tokens have no text."""
    rng = random.Random(0)
    for _ in range(100):
        edus = [(a, b) for a, b in cuts(rng, 8) if ODD[a:b].strip() and rng.random() < 0.8] or [(0, 5)]
        offsets = [(0, 0), *cuts(rng, 30), (5, 5), (0, 0)]
        parse = parse_of(ODD, edus)
        aligned = align(torch.tensor(offsets), parse.edus)
        assert aligned.tolist() == by_hand(offsets, parse.edus.tolist())
        assert aligned[0] == aligned[-1] == -1 and aligned.dtype == torch.int64
