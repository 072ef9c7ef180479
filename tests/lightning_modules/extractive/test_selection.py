import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cosine_similarity

from lightning_modules.extractive.scoring import POOLINGS, Pooler, SentenceScorer, centrality, cosines, document_cosine
from lightning_modules.extractive.selection import SELECTORS, Relations, SelectionOptions, select, shared_path


def made(seed: int, batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor, Relations]:
    torch.manual_seed(seed)
    vectors, document = torch.randn(batch, length, 3), torch.randn(batch, 3)
    shared = torch.rand(batch, length, length) < 0.3
    shared = shared | shared.transpose(1, 2)
    mask = torch.arange(length) < torch.randint(0, length + 1, (batch, 1))
    relations = Relations(cosines(vectors, vectors), document_cosine(vectors, document), shared)
    return torch.rand(batch, length), mask, relations


def by_hand(scores, mask, relations, options: SelectionOptions) -> list[int]:
    rest, taken, weight = [i for i in range(len(scores)) if mask[i]], [], 1.0
    similarity, near, shared = relations
    if options.selector == "mmr" and options.mmr_form == "classic":
        weight, penalty = options.trade_off, 1 - options.trade_off
    else:
        penalty = options.trade_off if options.selector in ("mmr", "triangle") else 0.0
    radius, distance = (torch.arccos(cosine.clamp(-1, 1)) / torch.pi for cosine in (near, similarity))

    def redundancy(i: int, j: int) -> float:
        if options.selector == "triangle":
            return ((radius[i] + radius[j] - distance[i, j]) / 2 / min(radius[i], radius[j])).item()
        return similarity[i, j].item()

    while rest and len(taken) < options.k:
        if options.selector == "trigram_blocking":
            rest = [i for i in rest if not any(shared[i, j] for j in taken)]
        worst = {i: max((redundancy(i, j) for j in taken), default=0.0) for i in rest}
        gains = {i: weight * scores[i].item() - penalty * worst[i] for i in rest}
        if not gains:
            break
        taken.append(max(gains, key=gains.get))
        rest.remove(taken[-1])
    return taken


@pytest.mark.parametrize("selector, form", [*product(SELECTORS, ["classic"]), ("mmr", "penalty")])
@given(seed=st.integers(0, 10_000), k=st.integers(1, 6), trade_off=st.sampled_from([0.0, 0.3, 0.7, 1.0]))
@settings(max_examples=40)
def test_equals_a_loop_over_sentences(selector, form, seed, k, trade_off):
    scores, mask, relations = made(seed, 3, 5)
    options = SelectionOptions(selector, k, form, trade_off)
    selected = select(scores, mask, relations, options)
    assert selected.shape == (3, min(k, 5))
    for b in range(3):
        taken = [i for i in selected[b].tolist() if i >= 0]
        assert taken == by_hand(scores[b], mask[b], Relations(*(part[b] for part in relations)), options)
        assert selected[b].tolist() == taken + [-1] * (min(k, 5) - len(taken))


def test_bounds_of_the_shared_way_the_order_of_equals_and_wrong_options():
    east, west, north = [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]
    points, document = torch.tensor([[east, west, east, north]]), torch.tensor([north])
    way = shared_path(cosines(points, points), document_cosine(points, document))[0]
    # on opposite sides of the document, equal sentences, and the document itself
    assert way[0].tolist() == [way[0, 0], pytest.approx(0, abs=1e-6), pytest.approx(1, abs=1e-6), 1]
    vectors = torch.randn(9, 5, 384)  # the pooling cls gives a document the vector of its first sentence
    assert (shared_path(cosines(vectors, vectors), document_cosine(vectors, vectors[:, 0]))[:, 0] == 1).all()
    vectors = torch.tensor([[east, east, north]])
    relations = Relations(cosines(vectors, vectors), torch.tensor([[0.8, 0.8, 0.6]]), torch.zeros(1, 3, 3).bool())
    scores, mask = torch.tensor([[0.5, 0.5, 0.4]]), torch.ones(1, 3).bool()
    assert select(scores, mask, None, SelectionOptions("top_k", 3)).tolist() == [[0, 1, 2]]
    assert select(scores, ~mask, None, SelectionOptions(k=2)).tolist() == [[-1, -1]]
    assert select(torch.zeros(2, 0), torch.zeros(2, 0).bool(), None, SelectionOptions(k=3)).shape == (2, 0)
    for selector in ("mmr", "triangle"):
        assert select(scores, mask, relations, SelectionOptions(selector, 2, trade_off=0.5)).tolist() == [[0, 2]]
    for arguments, part in [
        ({"selector": "best"}, "top_k, trigram_blocking, mmr, triangle"), ({"k": 0}, "k = 0"), ({"words": -1}, "words"),
        ({"selector": "mmr", "trade_off": 1.5}, "1.5"), ({"trade_off": -1}, "-1"), ({"order": "random"}, "random"),
        ({"ratio": -1}, "ratio"), ({"ratio": 1.5}, "ratio"), ({"share": -1}, "share"), ({"min_score": -1}, "min_score"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=part):
            SelectionOptions(**arguments)


def greedy_within(scores, words, mask, options: SelectionOptions) -> list[int]:
    by_score = sorted((i for i in range(len(scores)) if mask[i]), key=lambda i: (-scores[i], i))
    room = min(options.words or 10**9, int((options.ratio or 1) * sum(words) + 1e-3))
    most = min(options.k or 10**9, max(1, round((options.share or 1) * sum(count > 0 for count in words))))
    taken: list[int] = []
    for i in by_score:
        fits = sum(words[j] for j in taken) + words[i] <= room
        if fits and len(taken) < most and scores[i] >= (options.min_score or 0):
            taken.append(i)
    return taken or by_score[:1]


BUDGETS = [
    {"k": 99, "words": 12}, {"k": 2, "words": 12}, {"k": 99, "ratio": 0.3}, {"k": 99, "ratio": 0.5, "words": 9},
    {"k": 99, "share": 0.3}, {"k": 99, "min_score": 0.6}, {"k": 99, "min_score": 0.4, "words": 20, "share": 0.5},
    {"k": 99},
]  # fmt: skip


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_budgets_are_those_of_a_plain_loop(budget, seed):
    options = SelectionOptions(**budget)
    scores, mask, _ = made(seed, batch=6, length=9)
    words = torch.randint(1, 8, scores.shape) * mask
    taken = select(scores, mask, None, options, words)
    for row in range(len(scores)):
        expected = greedy_within(scores[row].tolist(), words[row].tolist(), mask[row].tolist(), options)
        assert [index for index in taken[row].tolist() if index >= 0] == expected
    for selector in SELECTORS:
        options, (scores, mask, relations) = SelectionOptions(selector, k=99, words=8), made(seed, batch=6, length=9)
        words = torch.randint(1, 5, scores.shape) * mask
        for row, counts in zip(select(scores, mask, relations, options, words).tolist(), words.tolist()):
            assert sum(counts[index] for index in row if index >= 0) <= 8


GROUP = torch.tensor([[0, 0, 1, 1, 1, -1], [0, 2, 2, 0, -1, -1]])  # document 1 has no token of sentence 1
HEADS = torch.tensor([[1, 0, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0]]).bool()


def pooled_by_hand(kind: str, states: torch.Tensor, heads: torch.Tensor, query) -> torch.Tensor:
    if kind == "max":
        return states.amax(0)
    if kind == "self_attention":
        return (states @ query / math.sqrt(states.shape[1])).softmax(0) @ states
    return (states[heads] if kind == "cls" else states).mean(0)


@pytest.mark.parametrize("kind", POOLINGS)
def test_pooling_equals_a_loop_over_groups(kind):
    torch.manual_seed(0)
    states, pooler = torch.randn(2, 6, 4), Pooler(kind, 4)
    if pooler.query is not None:  # attention starts as the mean and stays finite
        torch.testing.assert_close(pooler(states, GROUP, HEADS, 3), Pooler("mean", 4)(states, GROUP, HEADS, 3))
        pooler.query.data = torch.full((4,), 1e4)
        assert pooler(states, GROUP, HEADS, 3).isfinite().all()
        pooler.query.data = torch.randn(4)
    pooled = pooler(states, GROUP, HEADS, 3)
    for b in range(2):
        for group in range(3):
            at = GROUP[b] == group
            expected = pooled_by_hand(kind, states[b, at], HEADS[b, at], pooler.query) if at.any() else torch.zeros(4)
            torch.testing.assert_close(pooled[b, group], expected.detach())


def test_scores_equal_their_definitions():
    assert cosines(torch.zeros(1, 2, 3), torch.ones(1, 2, 3)).eq(0).all()
    assert centrality(torch.ones(1, 1, 3), torch.ones(1, 1).bool()).eq(0).all()
    torch.manual_seed(0)
    vectors, document = torch.randn(2, 4, 5), torch.randn(2, 5)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]).bool()
    near, central = document_cosine(vectors, document), centrality(vectors, mask)
    for b, size in enumerate((4, 3)):
        for i in range(size):
            torch.testing.assert_close(near[b, i], cosine_similarity(vectors[b, i], document[b], 0))
            others = [cosine_similarity(vectors[b, i], vectors[b, j], 0) for j in range(size) if j != i]
            torch.testing.assert_close(central[b, i], sum(others) / len(others))
    for kind, raw in (("document_cosine", near), ("centrality", central)):
        scorer = SentenceScorer(kind, 5)
        torch.testing.assert_close(scorer(vectors, document, mask)[mask], scorer.slope * raw[mask] + scorer.offset)
