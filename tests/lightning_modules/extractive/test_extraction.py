import math

import pytest
import torch

from lightning_modules.extractive.scoring import (
    POOLINGS,
    SCORINGS,
    Pooler,
    SentenceScorer,
    centrality,
    cosines,
    document_cosine,
)

GROUP = torch.tensor([[0, 0, 1, 1, 1, -1], [0, 2, 2, 0, -1, -1]])  # document 1 has no token of sentence 1
HEADS = torch.tensor([[1, 0, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0]]).bool()


def by_hand(kind: str, states, heads, query) -> torch.Tensor:
    if kind == "cls":
        states = [state for state, head in zip(states, heads) if head]
    if kind == "max":
        return torch.stack([max(column) for column in zip(*states)])
    weights = [1.0] * len(states)
    if kind == "self_attention":
        weights = [math.exp((state @ query).item() / math.sqrt(len(state))) for state in states]
    return sum(weight * state for weight, state in zip(weights, states)) / sum(weights)


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
            at = [t for t in range(6) if GROUP[b, t] == group]
            if not at:
                assert found[b, group].eq(0).all()
                continue
            expected = by_hand(kind, [states[b, t] for t in at], [HEADS[b, t] for t in at], pooler.query)
            torch.testing.assert_close(found[b, group], expected.detach())


def test_scores_equal_their_definitions():
    assert cosines(torch.zeros(1, 2, 3), torch.ones(1, 2, 3)).eq(0).all()
    assert centrality(torch.ones(1, 1, 3), torch.ones(1, 1).bool()).eq(0).all()
    torch.manual_seed(0)
    vectors, document = torch.randn(2, 4, 5), torch.randn(2, 5)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]).bool()
    cos = torch.nn.CosineSimilarity(0)
    near, central = document_cosine(vectors, document), centrality(vectors, mask)
    for b, size in enumerate((4, 3)):
        for i in range(size):
            torch.testing.assert_close(near[b, i], cos(vectors[b, i], document[b]))
            others = [cos(vectors[b, i], vectors[b, j]) for j in range(size) if j != i]
            torch.testing.assert_close(central[b, i], sum(others) / len(others))


@pytest.mark.parametrize("kind", SCORINGS)
def test_scorers_rank_as_their_cosines_do_and_learn(kind):
    torch.manual_seed(0)
    vectors, document = torch.randn(1, 4, 5, requires_grad=True), torch.randn(1, 5)
    mask = torch.ones(1, 4).bool()
    scorer = SentenceScorer(kind, 5)
    logits = scorer(vectors, document, mask)
    assert logits.shape == (1, 4)
    if kind != "classifier":
        raw = document_cosine(vectors, document) if kind == "document_cosine" else centrality(vectors, mask)
        assert logits.argsort(dim=1).tolist() == raw.argsort(dim=1).tolist()
    logits.square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in scorer.parameters())
