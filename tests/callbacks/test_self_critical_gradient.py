"""The gradient of the self-critical term against the exact one, of a writer that can be listed."""

import itertools
from collections import Counter
from dataclasses import replace
from statistics import mean, stdev

import pytest
import torch
from toy_writer import END, LONGEST, START, STOP, WORD, ByTable, ToyWriter, everything, padded, text_of

from callbacks import SelfCritical
from lightning_modules.decoding.options import DecodingOptions


def reward_of(ids: list[int]) -> float:
    return ByTable().table[text_of(ids)]


def greedy_of(model: ToyWriter) -> list[int]:
    ids: list[int] = []
    while len(ids) < LONGEST and STOP not in ids:
        ids.append(int(model.logits[0, ids[-1] if ids else 3].argmax()))
    return ids


def sentences(ids: list[int]) -> list[list[int]]:
    """Split token sequences after sentence ends; an end symbol after one is a separate sentence."""
    parts: list[list[int]] = [[]]
    for i, token in enumerate(ids):
        parts[-1].append(token)
        if token == END and i + 1 < len(ids):
            parts.append([])
    return parts


def values_by_loop(ids: list[int], credit: str) -> list[float]:
    """Return the gain in reward of each sentence over the preceding text, or its gain plus all later ones."""
    if credit == "summary":
        return [reward_of(ids)]
    parts = sentences(ids)
    sums = [reward_of(list(itertools.chain(*parts[: q + 1]))) for q in range(len(parts))]
    added = [total - (sums[q - 1] if q else 0.0) for q, total in enumerate(sums)]
    return added if credit == "myopic" else [sum(added[q:]) for q in range(len(added))]


def advantages_by_loop(texts: list[list[int]], k: int, credit: str, kind: str) -> list[float]:
    """Of every token of text k: its sentence's value, compared with those of the sentences with that number."""
    values = [values_by_loop(ids, credit) for ids in texts]
    result = []
    for q, part in enumerate([texts[k]] if credit == "summary" else sentences(texts[k])):
        column = [v[q] if q < len(v) else 0.0 for v in values]
        others = column[:k] + column[k + 1 :]
        advantage = {
            "leave_one_out": column[k] - mean(others),
            "group_mean": column[k] - mean(column),
            "group": (column[k] - mean(column)) / (stdev(column) + 1e-4),
        }[kind]
        result += [advantage] * len(part)
    return result


@pytest.mark.parametrize("credit", ["summary", "reward_to_go", "myopic"])
def test_advantages_equal_a_plain_loop(credit):
    model, every = ToyWriter(1), everything()
    made = padded([greedy_of(model), *every])
    actual = SelfCritical(ByTable(), credit=credit, samples=len(every)).advantages(model, model.batch(), made)
    assert actual.shape == (1, len(every), LONGEST) and not actual.requires_grad
    for row, ids in zip(actual[0].tolist(), every):
        expected = advantages_by_loop([ids, greedy_of(model)], 0, credit, "leave_one_out")  # there is one other
        assert row[: len(ids)] == pytest.approx(expected, abs=1e-12)
    for three in map(list, itertools.islice(itertools.combinations(every, 3), 0, None, 97)):
        for kind, tolerance in (("leave_one_out", 1e-12), ("group", 1e-9), ("group_mean", 1e-9)):
            callback = SelfCritical(ByTable(), credit=credit, samples=3, advantage=kind)
            actual = callback.advantages(model, model.batch(), padded(three))[0].tolist()
            for k, ids in enumerate(three):
                expected = advantages_by_loop(three, k, credit, kind)
                assert actual[k][: len(ids)] == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("credit", ["summary", "reward_to_go"])
@pytest.mark.parametrize("baseline", ["greedy", "leave_one_out", "group_mean"])
def test_the_expectation_over_everything_that_can_be_drawn_is_the_exact_gradient(credit, baseline):
    """It is half of it for the mean of both samples, (K - 1) / K."""
    model, every = ToyWriter(1), everything()
    chance = model.eval().log_probs(None, padded(every))[0].sum(-1).exp().detach()
    assert chance.sum() == pytest.approx(1, abs=1e-12)
    rewards = torch.tensor([reward_of(ids) for ids in every]).double()
    log_probs = model.log_probs(None, padded(every))[0]                              # [N, T]
    exact = torch.autograd.grad((log_probs.sum(-1).exp() * rewards).sum(), model.logits, retain_graph=True)[0]
    callback = SelfCritical(ByTable(), credit=credit, advantage=baseline, samples=2)
    total = 0.0
    if baseline == "greedy":
        advantage = callback.advantages(model, model.batch(), padded([greedy_of(model), *every]))[0]
        total = (chance.unsqueeze(1) * advantage * log_probs).sum()
    else:  # all pairs of samples, each pair as often as it is drawn
        for i, j in itertools.product(range(len(every)), repeat=2):
            advantage = callback.advantages(model, model.batch(), padded([every[i], every[j]]))[0]
            total = total + chance[i] * chance[j] * (advantage * log_probs[[i, j]]).sum() / 2
    expected = exact / 2 if baseline == "group_mean" else exact
    torch.testing.assert_close(torch.autograd.grad(total, model.logits)[0], expected, rtol=1e-9, atol=1e-12)


CONSTRAINTS = [
    {"min_length": 2},
    {"temperature": 0.6},
    {"no_repeat_ngram": 2},
    {"min_length": 1, "temperature": 1.7, "no_repeat_ngram": 2},
]


def constrained_log_prob(table: torch.Tensor, ids: list[int], options: DecodingOptions) -> torch.Tensor | None:
    """log P of a sequence, step by step, under the distribution that is decoded from; None if it is forbidden."""
    total, previous = torch.zeros((), dtype=torch.double), START
    for t, token in enumerate(ids):
        size = options.no_repeat_ngram
        before = {tuple(ids[i : i + size]) for i in range(t - size + 1)} if size else set()
        allowed = [
            word
            for word in (STOP, WORD, END)
            if (word != STOP or t >= options.min_length) and (*ids[t - size + 1 : t], word) not in before
        ]
        if token not in allowed:
            return None
        weights = table[previous] / options.temperature
        total = total + weights[token] - weights[allowed].logsumexp(0)
        previous = token
    return total


@pytest.mark.parametrize("constraints", CONSTRAINTS, ids=str)
def test_sampling_and_learning_follow_the_distribution_that_is_decoded_from(constraints):
    """The term's expectation is the gradient of the expected reward of decoded texts, by listing all of them."""
    torch.manual_seed(1)
    model = ToyWriter(1)
    temperature = constraints.get("temperature")
    model.decoding = replace(model.decoding, **{k: v for k, v in constraints.items() if k != "temperature"})
    callback = SelfCritical(ByTable(), samples=2000, advantage="leave_one_out", temperature=temperature)
    options = callback.options(model)
    scored = [(ids, constrained_log_prob(model.logits[0], ids, options)) for ids in everything()]
    every = [ids for ids, log_prob in scored if log_prob is not None]
    expected = torch.stack([log_prob for _, log_prob in scored if log_prob is not None])
    assert expected.exp().sum().item() == pytest.approx(1, abs=1e-12)

    # rescoring: each sequence has the probability of the plain loop, and forbidden ones have none
    log_probs = model.eval().log_probs(None, padded(every), options)[0]              # [N, T]
    torch.testing.assert_close(log_probs.sum(-1), expected)
    forbidden = [ids for ids, log_prob in scored if log_prob is None]
    assert bool(forbidden) == (constraints.keys() != {"temperature"})
    if forbidden:
        assert model.log_probs(None, padded(forbidden), options)[0].sum(-1).isneginf().all()

    # drawing: frequencies lie within five standard errors of these probabilities
    drawn = model.sample(model.batch(), options)
    counts = Counter(tuple(ids[:n]) for ids, n in zip(drawn.tokens[0].tolist(), drawn.lengths[0].tolist()))
    assert counts.keys() <= set(map(tuple, every))
    for ids, p in zip(every, expected.exp().tolist()):
        assert counts[tuple(ids)] / 2000 == pytest.approx(p, abs=5 * (p * (1 - p) / 2000) ** 0.5 + 1e-9)

    # learning: the expectation of the term over everything that can be drawn
    rewards = torch.tensor([reward_of(ids) for ids in every]).double()
    exact = torch.autograd.grad((expected.exp() * rewards).sum(), model.logits, retain_graph=True)[0]
    greedy = SelfCritical(ByTable(), temperature=temperature)
    baseline = model.sample(model.batch(), replace(options, beam_size=1, greedy_first=True))
    baseline = baseline.tokens[0, 0, : baseline.lengths[0, 0]].tolist()
    assert baseline in every
    advantage = greedy.advantages(model, model.batch(), padded([baseline, *every]))[0]
    total = (expected.exp().detach().unsqueeze(1) * advantage * log_probs).sum()
    torch.testing.assert_close(torch.autograd.grad(total, model.logits)[0], exact, rtol=1e-9, atol=1e-12)

    # the term itself, by its samples
    rounds = torch.stack(
        [-torch.autograd.grad(callback.term(model, model.batch()), model.logits)[0] for _ in range(6)]
    )
    error = rounds.std(0) / len(rounds) ** 0.5
    assert exact.abs().max() > 10 * error.max()
    assert ((rounds.mean(0) - exact).abs() <= 7 * error + 1e-12).all()


@pytest.mark.parametrize("credit", ["reward_to_go", "myopic"])
def test_credit_by_sentence_needs_a_token_that_ends_one(credit):
    writer = ToyWriter()
    with pytest.raises(ValueError, match=f"no token ends with one of ;.*credit summary instead of {credit}"):
        SelfCritical(credit=credit, sentence_ends=[";"]).term(writer, writer.batch())
