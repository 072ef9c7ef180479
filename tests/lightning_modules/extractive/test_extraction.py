import math

import pytest
import torch
from torch.nn.functional import cosine_similarity

from lightning_modules.extractive import scoring
from lightning_modules.extractive.scoring import POOLINGS, SCORINGS, Pooler, centrality, cosines, document_cosine

GROUP = torch.tensor([[0, 0, 1, 1, 1, -1], [0, 2, 2, 0, -1, -1]])  # document 1 has no token of sentence 1
HEADS = torch.tensor([[1, 0, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0]]).bool()


def by_hand(kind: str, states: torch.Tensor, heads: torch.Tensor, query) -> torch.Tensor:
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
    found = pooler(states, GROUP, HEADS, 3)
    for b in range(2):
        for group in range(3):
            at = GROUP[b] == group
            expected = by_hand(kind, states[b, at], HEADS[b, at], pooler.query) if at.any() else torch.zeros(4)
            torch.testing.assert_close(found[b, group], expected.detach())


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


@pytest.mark.parametrize("kind", SCORINGS)
def test_scorers_rank_as_their_cosines_do_and_learn(kind):
    torch.manual_seed(0)
    vectors, document = torch.randn(1, 4, 5, requires_grad=True), torch.randn(1, 5)
    mask = torch.ones(1, 4).bool()
    scorer = scoring.SentenceScorer(kind, 5)
    logits = scorer(vectors, document, mask)
    assert logits.shape == (1, 4)
    if kind != "classifier":
        raw = document_cosine(vectors, document) if kind == "document_cosine" else centrality(vectors, mask)
        assert logits.argsort(dim=1).tolist() == raw.argsort(dim=1).tolist()
    logits.square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in scorer.parameters())
