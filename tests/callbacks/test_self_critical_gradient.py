import math
from collections import Counter
from dataclasses import replace
from itertools import chain, combinations, islice, pairwise, product
from statistics import mean, stdev
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor
from toy_writer import END, LONGEST, START, STOP, WORD, ByTable, ToyWriter, advantage_of, everything, padded, text_of

from callbacks import SelfCritical
from callbacks.policy_gradient import divergence
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.metrics.rewards import Mixture, Repetition


def reward_of(ids: list[int]) -> float:
    return ByTable().table[text_of(ids)]


def greedy_of(model: ToyWriter) -> list[int]:
    ids: list[int] = []
    while len(ids) < LONGEST and STOP not in ids:
        ids.append(int(model.logits[0, ids[-1] if ids else START].argmax()))
    return ids


def sentences(ids: list[int]) -> list[list[int]]:
    """Split token sequences after sentence ends; an end symbol after one is a separate sentence."""
    ends = [0, *(i + 1 for i, token in enumerate(ids[:-1]) if token == END), len(ids)]
    return [ids[start:end] for start, end in pairwise(ends)]


def values_by_loop(ids: list[int], credit: str) -> list[float]:
    """Return the gain in reward of each sentence over the preceding text, or its gain plus all later ones."""
    if credit == "summary":
        return [reward_of(ids)]
    parts = sentences(ids)
    sums = [0.0, *(reward_of(list(chain(*parts[: q + 1]))) for q in range(len(parts)))]
    added = [after - before for before, after in pairwise(sums)]
    return added if credit == "myopic" else [sum(added[q:]) for q in range(len(added))]


def advantages_by_loop(texts: list[list[int]], k: int, credit: str, kind: str) -> list[float]:
    """Of every token of text k: its sentence's value, compared with those of the sentences with that number."""
    values = [values_by_loop(ids, credit) for ids in texts]
    result = []
    for q, part in enumerate([texts[k]] if credit == "summary" else sentences(texts[k])):
        column = [v[q] if q < len(v) else 0.0 for v in values]
        result += [advantage_of(kind, column, k)] * len(part)
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
    for three in map(list, islice(combinations(every, 3), 0, None, 97)):
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
    log_probs = model.log_probs(None, padded(every))[0]  # [N, T]
    exact = torch.autograd.grad((log_probs.sum(-1).exp() * rewards).sum(), model.logits, retain_graph=True)[0]
    callback = SelfCritical(ByTable(), credit=credit, advantage=baseline, samples=2)
    total = 0.0
    if baseline == "greedy":
        advantage = callback.advantages(model, model.batch(), padded([greedy_of(model), *every]))[0]
        total = (chance.unsqueeze(1) * advantage * log_probs).sum()
    else:  # all pairs of samples, each pair as often as it is drawn
        for i, j in product(range(len(every)), repeat=2):
            advantage = callback.advantages(model, model.batch(), padded([every[i], every[j]]))[0]
            total = total + chance[i] * chance[j] * (advantage * log_probs[[i, j]]).sum() / 2
    expected = exact / 2 if baseline == "group_mean" else exact
    torch.testing.assert_close(torch.autograd.grad(total, model.logits)[0], expected, rtol=1e-9, atol=1e-12)


def constrained_log_prob(table: torch.Tensor, ids: list[int], options: DecodingOptions) -> torch.Tensor | None:
    """log P of a sequence, step by step, under the distribution that is decoded from; None if it is forbidden."""
    total, previous, size = torch.zeros((), dtype=torch.double), START, options.no_repeat_ngram
    for t, token in enumerate(ids):
        before = {tuple(ids[i : i + size]) for i in range(t - size + 1)} if size else set()
        allowed = [word for word in (STOP, WORD, END) if (*ids[t - size + 1 : t], word) not in before]
        if t < options.min_length:
            allowed = [word for word in allowed if word != STOP]
        if token not in allowed:
            return None
        weights = table[previous] / options.temperature
        total = total + weights[token] - weights[allowed].logsumexp(0)
        previous = token
    return total


@pytest.mark.parametrize("constraints", [
    {"min_length": 2}, {"temperature": 0.6}, {"no_repeat_ngram": 2},
    {"min_length": 1, "temperature": 1.7, "no_repeat_ngram": 2},
], ids=str)  # fmt: skip
def test_sampling_and_learning_follow_the_distribution_that_is_decoded_from(constraints):
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
    log_probs = model.eval().log_probs(None, padded(every), options)[0]  # [N, T]
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
    rounds = [-torch.autograd.grad(callback.term(model, model.batch()), model.logits)[0] for _ in range(6)]
    rounds = torch.stack(rounds)
    error = rounds.std(0) / len(rounds) ** 0.5
    assert exact.abs().max() > 10 * error.max()
    assert ((rounds.mean(0) - exact).abs() <= 7 * error + 1e-12).all()


LONG = [WORD, END, WORD, WORD]  # as long as a sample may be, without an end symbol
DRAWN = [[WORD, STOP], LONG, [WORD, WORD, END, STOP], [STOP]]


def moved(model: ToyWriter, seed: int, by: float = 0.5) -> ToyWriter:
    other = ToyWriter(len(model.logits))
    noise = torch.randn(model.logits.shape, generator=torch.Generator().manual_seed(seed))
    other.logits.data = model.logits.data + by * noise.double()
    return other


def log_prob_by_loop(model: ToyWriter, ids: list[int]) -> list[Tensor]:
    previous = [START, *ids[:-1]]
    return [model.logits[0, last].log_softmax(-1)[token] for last, token in zip(previous, ids)]


def writer_of_drawn() -> ToyWriter:
    model = ToyWriter(1)
    model.sample = Mock(return_value=padded(DRAWN))
    return model


def callback_for(model: ToyWriter, **options) -> SelfCritical:
    callback = SelfCritical(ByTable(), **{"samples": 4, "advantage": "group"} | options)
    callback.reference.module = moved(model, seed=2).eval()
    return callback


def test_the_expected_penalty_is_a_divergence_and_its_gradient_is_that_of_the_reverse_one_at_each_token():
    model, every = ToyWriter(1).eval(), everything()
    reference = moved(model, seed=2).eval()
    ours, theirs = (writer.log_probs(None, padded(every))[0] for writer in (model, reference))  # [N, T]
    penalties = divergence(ours, theirs.detach())
    assert (penalties >= 0).all()
    chance = ours.sum(-1).exp().detach()
    penalty = (chance * penalties.sum(-1)).sum()
    exact = (chance * (ours - theirs).sum(-1)).sum()  # KL(P || Q), by enumeration of all texts
    torch.testing.assert_close(penalty, exact, rtol=1e-12, atol=1e-12)
    gradient = torch.autograd.grad(penalty, model.logits)[0]
    total = 0.0
    for n in range(LONGEST):
        for prefix in product((WORD, END), repeat=n):
            weight = math.exp(sum(float(value) for value in log_prob_by_loop(model, list(prefix))))
            last = prefix[-1] if prefix else START
            p, q = (writer.logits[0, last].log_softmax(-1) for writer in (model, reference))
            total = total + weight * (q.exp() * (q - p)).sum()  # KL(Q || P) of the next token
    expected = torch.autograd.grad(total, model.logits)[0]
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12)


def loss_by_loop(model: ToyWriter, old: ToyWriter, reference: ToyWriter, options: dict) -> Tensor:
    rewards = [reward_of(ids) for ids in DRAWN]
    total = torch.zeros((), dtype=torch.double)
    for k, ids in enumerate(DRAWN):
        if options.get("mask_truncated") and STOP not in ids:
            continue
        advantage = advantage_of(options["advantage"], rewards, k)
        for log_prob, before, theirs in zip(*(log_prob_by_loop(writer, ids) for writer in (model, old, reference))):
            gain = advantage * log_prob
            if options.get("updates", 1) > 1:
                ratio = (log_prob - before.detach()).exp()
                gain = min(ratio * advantage, min(max(ratio, 0.95), 1.1) * advantage)  # beyond, without a gradient
            log_ratio = theirs.detach() - log_prob
            total = total - gain + options.get("kl", 0) * (log_ratio.exp() - log_ratio - 1)
    return total / len(DRAWN)


@pytest.mark.parametrize("advantage", ["leave_one_out", "group", "group_mean"])
@pytest.mark.parametrize("more", [{}, {"kl": 0.3}, {"mask_truncated": True}, {"mask_truncated": True, "kl": 0.3}])
def test_loss_and_gradient_equal_a_plain_loop(advantage, more):
    model, options = writer_of_drawn(), {"advantage": advantage} | more
    callback = callback_for(model, **options)
    loss, expected = callback.term(model, model.batch()), loss_by_loop(model, model, callback.reference.module, options)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-14)
    gradients = [torch.autograd.grad(value, model.logits)[0] for value in (loss, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-13)
    assert model.step_values["truncated"] == 0.25 and ("kl" in model.step_values) == ("kl" in more)
    plain = SelfCritical(ByTable(), samples=4)
    plain.term(model, model.batch())
    assert plain.reference.module is None, "without a penalty there is no reference"


def test_later_updates_reuse_samples_rewards_and_old_probabilities():
    model, options = writer_of_drawn(), {"advantage": "group", "updates": 3, "kl": 0.2}
    callback = callback_for(model, clip=(0.05, 0.1), **options)
    old = moved(model, seed=0, by=0.0)
    for update in range(3):
        loss = callback.term(model, model.batch())
        expected = loss_by_loop(model, old, callback.reference.module, options)
        torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-12)
        gradients = [torch.autograd.grad(value, model.logits)[0] for value in (loss, expected)]
        torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)
        assert model.step_values["clipped"] == 0 if update == 0 else model.step_values["clipped"] > 0
        model.logits.data -= gradients[0]
        # what a checkpoint holds restores the same state
        callback.load_state_dict(callback.state_dict())
        assert len(callback.state_dict()["waiting"]) == (update < 2)
    assert model.sample.call_count == 1
    callback.term(model, model.batch())
    assert model.sample.call_count == 2 and model.step_values["clipped"] == 0


def test_each_reward_of_a_mixture_is_logged_with_the_spread_within_documents():
    model = writer_of_drawn()
    reward = Mixture([ByTable(), Repetition(1), Repetition(1)], [1.0, -0.5, 0.0])
    callback = SelfCritical(reward, samples=4, advantage="group_mean")
    callback.term(model, model.batch())
    texts, values = [text_of(ids) for ids in DRAWN], model.step_values
    table = [reward_of(ids) for ids in DRAWN]
    repeated = [1 - len(set(text.split()) - {"."}) / max(1, text.count("x")) if "x" in text else 0.0 for text in texts]
    for name, column in {"ByTable": table, "repetition_1": repeated, "repetition_1_2": repeated}.items():
        assert values[f"reward/{name}"] == pytest.approx(mean(column), abs=1e-12)
        assert values[f"reward_std/{name}"] == pytest.approx(stdev(column), abs=1e-12)
    total = [a - 0.5 * b for a, b in zip(table, repeated)]
    assert values["reward"] == pytest.approx(mean(total)) and values["reward_std"] == pytest.approx(stdev(total))
    assert values["no_signal"] == 0
    rows = callback.last_samples
    assert [row["sample"] for row in rows] == texts and [row["reward"] for row in rows] == pytest.approx(total)
    assert [row["repetition_1"] for row in rows] == pytest.approx(repeated)
