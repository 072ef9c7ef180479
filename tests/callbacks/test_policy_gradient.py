"""Penalty to a reference, clipped ratios, masked samples and repeated updates against plain loops and enumeration."""

import math
from itertools import product
from statistics import mean, stdev

import pytest
import torch
from torch import Tensor
from toy_writer import END, LONGEST, START, STOP, WORD, ByTable, ToyWriter, everything, padded, text_of

from callbacks import SelfCritical
from callbacks.policy_gradient import divergence
from lightning_modules.metrics.rewards import Mixture, Repetition
from lightning_modules.summarizer import Samples

LONG = [WORD, END, WORD, WORD]  # as long as a sample may be, without an end symbol
DRAWN = [[WORD, STOP], LONG, [WORD, WORD, END, STOP], [STOP]]


def moved(model: ToyWriter, seed: int, by: float = 0.5) -> ToyWriter:
    """A writer with other logits."""
    other = ToyWriter(len(model.logits))
    noise = torch.randn(model.logits.shape, generator=torch.Generator().manual_seed(seed))
    other.logits.data = model.logits.data + by * noise.double()
    return other


def log_prob_by_loop(model: ToyWriter, ids: list[int]) -> list[Tensor]:
    """log P of each token, step by step."""
    previous = [START, *ids[:-1]]
    return [model.logits[0, last].log_softmax(-1)[token] for last, token in zip(previous, ids)]


def fixed(model: ToyWriter, sequences: list[list[int]]) -> list[int]:
    """Let a writer draw some sequences; return a list that grows with each call."""
    calls: list[int] = []

    def sample(batch, options) -> Samples:
        calls.append(1)
        return padded(sequences)

    model.sample = sample
    return calls


def callback_for(model: ToyWriter, **options) -> SelfCritical:
    callback = SelfCritical(ByTable(), **{"samples": 4, "advantage": "group"} | options)
    callback.reference.module = moved(model, seed=2).eval()
    return callback


def test_the_expected_penalty_is_the_divergence_of_all_texts_by_enumeration():
    model, every = ToyWriter(1).eval(), everything()
    reference = moved(model, seed=2).eval()
    ours, theirs = (writer.log_probs(None, padded(every))[0] for writer in (model, reference))         # [N, T]
    penalties = divergence(ours, theirs.detach())
    assert (penalties >= 0).all()
    chance = ours.sum(-1).exp().detach()
    exact = (chance * (ours - theirs).sum(-1)).sum()  # KL(P || Q)
    torch.testing.assert_close((chance * penalties.sum(-1)).sum(), exact, rtol=1e-12, atol=1e-12)


def test_the_expected_gradient_of_the_penalty_is_that_of_the_reverse_divergence_at_each_token():
    model, every = ToyWriter(1).eval(), everything()
    reference = moved(model, seed=2).eval()
    ours, theirs = (writer.log_probs(None, padded(every))[0] for writer in (model, reference))
    chance = ours.sum(-1).exp().detach()
    gradient = torch.autograd.grad((chance * divergence(ours, theirs.detach()).sum(-1)).sum(), model.logits)[0]
    total = 0.0
    for n in range(LONGEST):
        for prefix in product((WORD, END), repeat=n):
            weight = math.exp(sum(float(value) for value in log_prob_by_loop(model, list(prefix))))
            last = prefix[-1] if prefix else START
            p, q = (writer.logits[0, last].log_softmax(-1) for writer in (model, reference))
            total = total + weight * (q.exp() * (q - p)).sum()                       # KL(Q || P) of the next token
    expected = torch.autograd.grad(total, model.logits)[0]
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12)


def loss_by_loop(model: ToyWriter, old: ToyWriter, reference: ToyWriter, options: dict) -> Tensor:
    """The term of `DRAWN`, token by token."""
    rewards = [ByTable().table[text_of(ids)] for ids in DRAWN]
    total = torch.zeros((), dtype=torch.double)
    for k, ids in enumerate(DRAWN):
        if options.get("mask_truncated") and STOP not in ids:
            continue
        others = rewards[:k] + rewards[k + 1 :]
        advantage = {
            "leave_one_out": rewards[k] - mean(others),
            "group_mean": rewards[k] - mean(rewards),
            "group": (rewards[k] - mean(rewards)) / (stdev(rewards) + 1e-4),
        }[options["advantage"]]
        steps = zip(*(log_prob_by_loop(writer, ids) for writer in (model, old, reference)))
        for log_prob, before, theirs in steps:
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
    model, options = ToyWriter(1), {"advantage": advantage} | more
    fixed(model, DRAWN)
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
    model = ToyWriter(1)
    options = {"advantage": "group", "updates": 3, "kl": 0.2}
    calls, callback = fixed(model, DRAWN), callback_for(model, clip=(0.05, 0.1), **options)
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
    assert len(calls) == 1
    callback.term(model, model.batch())
    assert len(calls) == 2 and model.step_values["clipped"] == 0


def test_each_reward_of_a_mixture_is_logged_with_the_spread_within_documents():
    model = ToyWriter(1)
    fixed(model, DRAWN)
    reward = Mixture([ByTable(), Repetition(1), Repetition(1)], [1.0, -0.5, 0.0])
    callback = SelfCritical(reward, samples=4, advantage="group_mean")
    callback.term(model, model.batch())
    texts, values = [text_of(ids) for ids in DRAWN], model.step_values
    table = [ByTable().table[text] for text in texts]
    repeated = [1 - len(set(text.split()) - {"."}) / max(1, text.count("x")) if "x" in text else 0.0 for text in texts]
    columns = {"ByTable": table, "repetition_1": repeated, "repetition_1_2": repeated}
    for name, column in columns.items():
        assert values[f"reward/{name}"] == pytest.approx(mean(column), abs=1e-12)
        assert values[f"reward_std/{name}"] == pytest.approx(stdev(column), abs=1e-12)
    total = [a - 0.5 * b for a, b in zip(table, repeated)]
    assert values["reward"] == pytest.approx(mean(total)) and values["reward_std"] == pytest.approx(stdev(total))
    assert values["no_signal"] == 0
    rows = callback.last_samples
    assert [row["sample"] for row in rows] == texts and [row["reward"] for row in rows] == pytest.approx(total)
    assert [row["repetition_1"] for row in rows] == pytest.approx(repeated)
