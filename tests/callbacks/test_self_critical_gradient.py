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
from lightning_modules.summarizer import Samples

UNBIASED = [(credit, baseline) for credit in ("summary", "reward_to_go") for baseline in ("greedy", "leave_one_out")]
every_unbiased = pytest.mark.parametrize("credit, baseline", UNBIASED)


def reward_of(ids: list[int]) -> float:
    return ByTable().table[text_of(ids)]


def probabilities(model: ToyWriter, document: int) -> torch.Tensor:
    """P(y) of everything that the model can write about a document."""
    made = padded(everything())
    both = Samples(made.tokens.expand(2, -1, -1), made.lengths.expand(2, -1))
    return model.eval().log_probs(model.batch(), both)[document].sum(-1).exp()


def greedy_of(model: ToyWriter, document: int) -> list[int]:
    ids: list[int] = []
    while len(ids) < LONGEST and STOP not in ids:
        ids.append(int(model.logits[document, ids[-1] if ids else 3].argmax()))
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


def advantages_by_loop(ids: list[int], others: list[list[int]], credit: str) -> list[float]:
    """Of every token: its sentence's value less the others' mean value of the sentence with that number."""
    values, theirs = values_by_loop(ids, credit), [values_by_loop(other, credit) for other in others]
    numbers = [0] * len(ids)
    if credit != "summary":
        numbers = [q for q, part in enumerate(sentences(ids)) for _ in part]
    baseline = [sum(v[q] if q < len(v) else 0.0 for v in theirs) / len(theirs) for q in range(len(values))]
    return [values[q] - baseline[q] for q in numbers]


def group_by_loop(three: list[list[int]], k: int, credit: str, divided: bool) -> list[float]:
    """Of every token: its sentence's value less the mean of all three samples, possibly by their deviation."""
    values = [values_by_loop(ids, credit) for ids in three]
    numbers = [0] * len(three[k])
    if credit != "summary":
        numbers = [q for q, part in enumerate(sentences(three[k])) for _ in part]
    result = []
    for q in numbers:
        column = [v[q] if q < len(v) else 0.0 for v in values]
        result.append((column[k] - mean(column)) / (stdev(column) + 1e-4 if divided else 1))
    return result


@pytest.mark.parametrize("credit", ["summary", "reward_to_go", "myopic"])
def test_advantages_equal_a_plain_loop(credit):
    model, every = ToyWriter(1), everything()
    made = padded([greedy_of(model, 0), *every])
    actual = SelfCritical(ByTable(), credit=credit, samples=len(every)).advantages(model, model.batch(), made)
    assert actual.shape == (1, len(every), LONGEST) and not actual.requires_grad
    for row, ids in zip(actual[0].tolist(), every):
        assert row[: len(ids)] == pytest.approx(advantages_by_loop(ids, [greedy_of(model, 0)], credit), abs=1e-12)
    left_out = SelfCritical(ByTable(), credit=credit, samples=3, advantage="leave_one_out")
    for three in itertools.islice(itertools.combinations(every, 3), 0, None, 97):
        actual = left_out.advantages(model, model.batch(), padded(list(three)))[0].tolist()
        for k, ids in enumerate(three):
            expected = advantages_by_loop(ids, [*three[:k], *three[k + 1 :]], credit)
            assert actual[k][: len(ids)] == pytest.approx(expected, abs=1e-12)
        for kind in ("group", "group_mean"):
            callback = SelfCritical(ByTable(), credit=credit, samples=3, advantage=kind)
            actual = callback.advantages(model, model.batch(), padded(list(three)))[0].tolist()
            for k, ids in enumerate(three):
                expected = group_by_loop(list(three), k, credit, divided=kind == "group")
                assert actual[k][: len(ids)] == pytest.approx(expected, abs=1e-9)


@every_unbiased
def test_the_expectation_over_everything_that_can_be_drawn_is_the_exact_gradient(credit, baseline):
    model, every = ToyWriter(1), everything()
    chance = probabilities(model, 0) if len(model.logits) > 1 else model.eval().log_probs(None, padded(every))[0]
    chance = chance.sum(-1).exp().detach()
    assert chance.sum() == pytest.approx(1, abs=1e-12)
    rewards = torch.tensor([reward_of(ids) for ids in every]).double()
    log_probs = model.log_probs(None, padded(every))[0]                              # [N, T]
    exact = torch.autograd.grad((log_probs.sum(-1).exp() * rewards).sum(), model.logits, retain_graph=True)[0]
    callback = SelfCritical(ByTable(), credit=credit, advantage=baseline, samples=2)
    total = 0.0
    if baseline == "greedy":
        advantage = callback.advantages(model, model.batch(), padded([greedy_of(model, 0), *every]))[0]
        total = (chance.unsqueeze(1) * advantage * log_probs).sum()
    else:  # all pairs of samples, each pair as often as it is drawn
        for i, j in itertools.product(range(len(every)), repeat=2):
            advantage = callback.advantages(model, model.batch(), padded([every[i], every[j]]))[0]
            total = total + chance[i] * chance[j] * (advantage * log_probs[[i, j]]).sum() / 2
    torch.testing.assert_close(torch.autograd.grad(total, model.logits)[0], exact, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("divided", [False, True])
def test_the_expectation_of_a_group_is_that_of_its_pairs(divided):
    """Without division it is half of the exact gradient, (K - 1) / K; with it, a sum over pairs written out."""
    model, every = ToyWriter(1), everything()
    log_probs = model.log_probs(None, padded(every))[0]                              # [N, T]
    sums = log_probs.sum(-1)
    chance, rewards = sums.exp().detach(), torch.tensor([reward_of(ids) for ids in every]).double()
    callback = SelfCritical(ByTable(), advantage="group" if divided else "group_mean", samples=2)
    total = expected = 0.0
    for i, j in itertools.product(range(len(every)), repeat=2):
        advantage = callback.advantages(model, model.batch(), padded([every[i], every[j]]))[0]
        total = total + chance[i] * chance[j] * (advantage * log_probs[[i, j]]).sum() / 2
        half = (rewards[i] - rewards[j]) / 2  # what the first is above the mean of both
        scale = float(abs(half)) * 2**0.5 + 1e-4 if divided else 1.0
        expected = expected + chance[i] * chance[j] * half / scale * (sums[i] - sums[j]) / 2
    torch.testing.assert_close(total, expected, rtol=1e-9, atol=1e-12)
    gradients = [torch.autograd.grad(value, model.logits, retain_graph=True)[0] for value in (total, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)
    if not divided:
        exact = torch.autograd.grad((sums.exp() * rewards).sum(), model.logits)[0]
        torch.testing.assert_close(gradients[0], exact / 2, rtol=1e-9, atol=1e-12)


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
