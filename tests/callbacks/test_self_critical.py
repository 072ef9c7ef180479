import math
import warnings
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch
from cases import BY_NAME, CASES
from pytorch_lightning import Callback, seed_everything
from pytorch_lightning.callbacks import LambdaCallback
from test_harness import trainer_with
from torch import nn
from toy_writer import ByTable, ToyWriter

from callbacks import CoverageAnnealing, SelfCritical
from datamodules.text.vocabulary import STOP
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.metrics.rewards import Mixture, Novelty, Repetition, Reward, RewardInputs, RougeReward
from lightning_modules.networks.dropout import without_dropout
from lightning_modules.summarizer import Samples

CASE = BY_NAME["pointer-coverage"]
WRITERS = [case for case in CASES if hasattr(case.model_class, "log_probs")]


def first_batch(case, files, **model):
    seed_everything(3, verbose=False)
    made, data = case.build(files, **model)
    return made, next(iter(data.train_dataloader()))


def fitted(case, files, *callbacks: Callback, ckpt_path=None, **trainer):
    seed_everything(5, verbose=False)
    model, data = case.build_model(), case.build_data(files)
    trainer_with(*callbacks, **{"limit_val_batches": 0} | trainer).fit(model, data, ckpt_path=ckpt_path)
    return model


def distributions(model, batch, prefix: list[int], options: DecodingOptions | None) -> torch.Tensor:
    """log P of every token after a beginning that all documents share, [B, words]: one sample for each token."""
    copies = hasattr(batch, "oov_words") and getattr(model.network, "pointer", model) is not None
    words = model.vocab_size + (max(map(len, batch.oov_words)) if copies else 0)
    tokens = torch.tensor([[*prefix, word] for word in range(words)]).expand(batch.batch_size, -1, -1)
    lengths = torch.full(tokens.shape[:2], tokens.shape[2])
    with torch.no_grad(), without_dropout(model):
        return model.log_probs(batch, Samples(tokens.contiguous(), lengths), options)[..., -1].double()


@pytest.mark.parametrize("case", WRITERS, ids=lambda case: case.name)
@pytest.mark.parametrize("constraints", [{"no_repeat_ngram": 2, "temperature": 0.6}, {}], ids=str)
def test_samples_are_rescored_under_the_distribution_that_they_are_drawn_from(case, constraints, corpus_files):
    model, batch = first_batch(case, corpus_files)
    constraints = {"min_length": 3, "max_length": 5} | constraints
    options = DecodingOptions(beam_size=300, sample=True, **constraints)
    drawn = model.sample(batch, options)
    with torch.no_grad(), without_dropout(model):
        scored = model.log_probs(batch, drawn, options)
    assert scored.isfinite().all(), "nothing that is forbidden was drawn"
    assert drawn.lengths.min() >= 4 and (scored[torch.arange(5) >= drawn.lengths.unsqueeze(-1)] == 0).all()
    first = drawn.tokens[0, 0, 0].item()
    prefix = [first, drawn.tokens[0, 0, 1].item(), first]
    plain, constrained = distributions(model, batch, prefix, None), distributions(model, batch, prefix, options)
    early = distributions(model, batch, prefix[:1], options)
    repeats = constrained[:, prefix[1]]
    assert not options.no_repeat_ngram or repeats.isneginf().all(), "it would repeat the first two tokens"
    stop = getattr(model.tokenizer, "stop", STOP)
    assert early[:, stop].isneginf().all() and constrained[:, stop].isfinite().all()
    for row in range(batch.batch_size):
        allowed = constrained[row].isfinite()
        expected = (plain[row][allowed] / options.temperature).log_softmax(-1)
        torch.testing.assert_close(constrained[row][allowed], expected, rtol=1e-4, atol=1e-4)
        # frequencies of the first tokens lie within six standard errors of their probabilities
        chances = distributions(model, batch, [], options)[row].exp()
        counts = drawn.tokens[row, :, 0].bincount(minlength=len(chances)) / 300
        assert ((counts - chances).abs() <= 6 * (chances * (1 - chances) / 300).sqrt() + 6 / 300).all()


@pytest.mark.parametrize("name", ["seq2seq", "pointer-coverage", "agents-m7"])
def test_the_short_way_to_rescore_has_the_gradients_of_the_long_one(name, corpus_files):
    """The long way, over all words, is taken where there is a temperature; here it is hardly one."""
    model, batch = first_batch(BY_NAME[name], corpus_files, dropout=0.0)
    model.double()
    options = DecodingOptions(beam_size=4, min_length=3, max_length=6, sample=True)
    drawn = model.sample(batch, options)
    ways, parameters = [], [p for p in model.parameters() if p.requires_grad]
    for way in (options, replace(options, temperature=1 + 1e-12)):
        log_probs = model.log_probs(batch, drawn, way)
        loss = log_probs.flatten() @ torch.linspace(-1, 1, log_probs.numel(), dtype=log_probs.dtype)
        ways.append([log_probs, *torch.autograd.grad(loss, parameters, allow_unused=True)])
    torch.testing.assert_close(*ways, rtol=1e-6, atol=1e-9)


def test_the_loss_is_shifted_from_the_model_s_terms_to_the_reward(corpus_files):
    batches = []  # weights of the reward and of the model's terms, loss, logged values

    def record(trainer, model, outputs, *_):
        logged = {name.removeprefix("train/"): value.item() for name, value in trainer.callback_metrics.items()}
        weights = model.loss_weights["self_critical"], model.model_loss_weight
        batches.append((*weights, outputs["loss"].item(), logged))

    schedule = SelfCritical(gamma=0.8, start_step=2, ramp_steps=4)
    annealing = CoverageAnnealing(start_step=1, ramp_steps=3)
    model = fitted(CASE, corpus_files, annealing, schedule, LambdaCallback(on_train_batch_end=record), max_epochs=1)
    gammas = [0, 0, 0.2, 0.4, 0.6, 0.8, 0.8]
    assert gammas == pytest.approx([schedule.gamma_at(step) for step in range(7)])
    for gamma, (reward_weight, model_weight, loss, logged) in zip(gammas, batches, strict=True):
        assert (reward_weight, model_weight) == pytest.approx((gamma, 1 - gamma))
        supervised = logged["nll"] + logged["coverage_weight"] * logged["coverage"]
        reward = logged["self_critical"] if gamma else 0.0
        assert loss == pytest.approx((1 - gamma) * supervised + gamma * reward, rel=1e-5)
    assert "self_critical" not in batches[1][-1]  # what has no weight is not computed
    logged = batches[-1][-1]
    assert {"reward", "reward_baseline", "advantage_rms", "baseline_length", "gamma"} <= logged.keys()
    assert logged["advantage"] == pytest.approx(logged["reward"] - logged["reward_baseline"], abs=1e-7)
    assert 0 < logged["entropy"] < math.log(60) and 0 < logged["reward_time"] < 1
    assert 1 <= logged["sample_length"] <= 12 and 0 <= logged["advantage_positive"] <= 1
    assert model.extra_terms == {} and model.model_loss_weight == 1  # another training starts without it


def test_a_recurrent_layer_stays_in_training_without_its_dropout():
    module = nn.ModuleDict({"lstm": nn.LSTM(3, 3, num_layers=2, dropout=0.5), "drop": nn.Dropout(0.5)}).train()
    x = torch.randn(4, 1, 3)
    with without_dropout(module):
        assert module["lstm"].training and not module["drop"].training  # cuDNN has no gradient of eval mode
        outputs = [module["lstm"](x)[0] for _ in range(2)]
        assert torch.equal(*outputs) and outputs[0].requires_grad
    assert module["lstm"].dropout == 0.5 and module["drop"].training
    with pytest.raises(RuntimeError, match="inside"), without_dropout(module):
        raise RuntimeError("inside")
    assert module["drop"].training

    class Layer(nn.Module):  # of `transformers`, which recomputes its activations in the rescoring pass, too
        def __init__(self) -> None:
            super().__init__()
            self.dropout, self.layerdrop, self.gradient_checkpointing = 0.5, 0.5, True

    module = nn.Sequential(Layer(), nn.Linear(2, 2)).train()
    with without_dropout(module):
        assert module[0].training and module[0].dropout == module[0].layerdrop == 0 and not module[1].training
    assert module[0].dropout == module[0].layerdrop == 0.5 and module[1].training


class Constant(Reward):
    def __init__(self, values: list[float]) -> None:
        self.values = values

    def __call__(self, written: RewardInputs) -> list[float]:
        return self.values[: len(written.texts)]


def test_settings_models_and_rewards_that_cannot_be_used_are_refused():
    with pytest.raises(ValueError, match="SelfCritical: too few samples for the advantage group: 1"):
        SelfCritical(samples=1, advantage="group")
    model = ToyWriter()
    model.decoding = DecodingOptions(min_length=3, max_length=4)
    with pytest.raises(ValueError, match=r"max_length 3 is not above model\.decoding\.min_length 3"):
        SelfCritical(max_length=3).setup(None, model, "fit")
    extractive = nn.Module()
    with pytest.raises(ValueError, match="Module has no sample, log_probs, texts"):
        SelfCritical().setup(None, extractive, "fit")
    SelfCritical().setup(None, extractive, "test")
    with pytest.raises(ValueError, match="ToyWriter has no source_ids"):
        SelfCritical(Mixture([RougeReward(), Novelty()])).setup(None, ToyWriter(), "fit")
    model = ToyWriter()
    for credit in ("reward_to_go", "myopic"):
        with pytest.raises(ValueError, match=f"no token ends with one of ;.*credit summary instead of {credit}"):
            SelfCritical(credit=credit, sentence_ends=[";"]).term(model, model.batch())
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


def test_rewards_see_texts_references_and_documents(corpus_files):
    model, batch = first_batch(CASE, corpus_files)
    spy = Mock(wraps=Mixture([RougeReward(), Novelty(), Repetition()], [1.0, 0.1, -0.5]), reads_source=True)
    SelfCritical(spy, samples=3, credit="reward_to_go").term(model, batch)
    (written,) = spy.call_args.args
    assert spy.call_count == 1
    assert list(dict.fromkeys(written.ids)) == batch.ids
    assert len(set(zip(written.ids, written.texts))) == len(written.ids)  # each text of a document once
    references = {name: [" ".join(one) for one in those] for name, those in zip(batch.ids, batch.references)}
    assert all(written.references[i] == references[name] for i, name in enumerate(written.ids))
    assert all("is a" in source and "every morning" in source for source in written.sources)
