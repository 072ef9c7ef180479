"""Refused settings of self-critical training, and rewards that are not finite, incomplete or all equal."""

import math
import warnings

import pytest
import torch
from test_self_critical import CASE, first_batch
from torch import nn
from toy_writer import ByTable, ToyWriter

from callbacks import SelfCritical
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.metrics.rewards import Mixture, Novelty, Repetition, Reward, RewardInputs, RougeReward


class Constant(Reward):
    """The first of some numbers, one for each text."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def __call__(self, written: RewardInputs) -> list[float]:
        return self.values[: len(written.texts)]


def test_too_few_samples_and_a_length_below_the_shortest_summary_are_refused():
    with pytest.raises(ValueError, match="SelfCritical: too few samples for the advantage group: 1"):
        SelfCritical(samples=1, advantage="group")
    model = ToyWriter()
    model.decoding = DecodingOptions(min_length=3, max_length=4)
    with pytest.raises(ValueError, match=r"max_length 3 is not above model\.decoding\.min_length 3"):
        SelfCritical(max_length=3).setup(None, model, "fit")


@pytest.mark.parametrize("argument, message", [
    ("gamma=2", "gamma must be at least 0 and at most 1, got 2"),
    ("advantage=mean", "advantage: expected one of 'greedy', 'leave_one_out', 'group', 'group_mean', got 'mean'"),
])  # fmt: skip
def test_the_command_refuses_arguments_out_of_range_in_one_line(argument, message, tiny_config, precis, tmp_path):
    flags = ["--trainer.callbacks+=callbacks.SelfCritical", f"--trainer.callbacks.{argument}"]
    done = precis("fit", "--config", tiny_config, *flags, "--run_dir", tmp_path / "run")
    assert done.status != 0 and f"trainer.callbacks.{message}" in done.err and done.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_reward_that_is_not_finite_or_for_some_texts_only_is_named():
    model = ToyWriter()
    for value in (math.nan, -math.inf):
        with pytest.raises(ValueError, match=rf"reward Constant is {value} for '.*', written for document doc-0"):
            SelfCritical(Constant([value] * 100)).term(model, model.batch())
    torch.manual_seed(0)
    with pytest.raises(ValueError, match=r"reward Constant returned 1 numbers for \d+ texts"):
        SelfCritical(Constant([0.0]), samples=20).term(model, model.batch())


@pytest.mark.parametrize("baseline", ["greedy", "leave_one_out", "group", "group_mean"])
def test_identical_samples_leave_no_gradient_and_a_warning(baseline):
    model = ToyWriter()
    with torch.no_grad():
        model.logits[:, :, 1] += 100  # one text has all of the probability
    callback = SelfCritical(ByTable(), samples=2, advantage=baseline, window=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            callback.term(model, model.batch()).backward()
    with pytest.warns(UserWarning, match="no better or worse than the baseline"):
        callback.term(model, model.batch()).backward()
    assert not model.logits.grad.any()
    assert model.step_values["advantage_rms"] == 0 == model.step_values["advantage_positive"]
    assert model.step_values["no_signal"] == 1


def test_models_that_do_not_write_or_cannot_show_the_document_are_refused():
    extractive = nn.Module()
    with pytest.raises(ValueError, match="Module has no sample, log_probs, texts"):
        SelfCritical().setup(None, extractive, "fit")
    SelfCritical().setup(None, extractive, "test")
    with pytest.raises(ValueError, match="ToyWriter has no source_ids"):
        SelfCritical(Mixture([RougeReward(), Novelty()])).setup(None, ToyWriter(), "fit")


def test_rewards_see_texts_references_and_documents(corpus_files):
    model, batch = first_batch(CASE, corpus_files)
    seen = []

    class Spy(Reward):
        reads_source = True

        def __call__(self, written: RewardInputs) -> list[float]:
            seen.append(written)
            return Mixture([RougeReward(), Novelty(), Repetition()], [1.0, 0.1, -0.5])(written)

    SelfCritical(Spy(), samples=3, credit="reward_to_go").term(model, batch)
    (written,) = seen
    assert list(dict.fromkeys(written.ids)) == batch.ids
    pairs = list(zip(written.ids, written.texts))
    assert len(set(pairs)) == len(pairs)  # each text of a document once
    references = {name: [" ".join(one) for one in those] for name, those in zip(batch.ids, batch.references)}
    assert all(written.references[i] == references[name] for i, name in enumerate(written.ids))
    assert all("is a" in source and "every morning" in source for source in written.sources)
