import pytest
import torch
from pytorch_lightning import Callback
from test_harness import Recorder, same_weights, trainer_with
from test_self_critical import CASE, first_batch, fitted
from tiny_models import make_summarizer

from callbacks import CoverageAnnealing, SelfCritical
from callbacks.reference_model import FILE, frozen_copy
from datamodules.corpora import Files
from datamodules.documents import UserError
from datamodules.pretrained_summarizer import PretrainedSummarizerData
from lightning_modules.networks.dropout import without_dropout
from lightning_modules.options import AdamWOptions
from lightning_modules.pretrained_summarizer import CheckpointOptions, PretrainedSummarizer


class Checkpoint(Callback):
    def on_train_end(self, trainer, pl_module):
        self.reference = next(c for c in trainer.callbacks if isinstance(c, SelfCritical)).reference.module
        self.in_optimizer = {id(p) for group in trainer.optimizers[0].param_groups for p in group["params"]}
        self.names = set(trainer._checkpoint_connector.dump_checkpoint()["state_dict"])


def test_the_reference_is_in_no_optimizer_and_no_checkpoint_and_stays_as_it_was(corpus_files, tmp_path):
    seen, start = Checkpoint(), CASE.build_model()
    torch.manual_seed(0)
    callback = SelfCritical(samples=2, advantage="group", kl=0.5)
    model = fitted(CASE, corpus_files, callback, seen, max_steps=3, default_root_dir=tmp_path)
    assert seen.names == set(start.state_dict()) and callback.reference.module is None
    parameters = list(seen.reference.parameters())
    assert not any(p.requires_grad or id(p) in seen.in_optimizer for p in parameters) and not seen.reference.training
    began = torch.load(tmp_path / FILE, weights_only=True)["state_dict"]
    copied = seen.reference.state_dict()
    assert {name for name, p in start.named_parameters() if p.requires_grad} <= set(began) <= set(copied)
    assert all(torch.equal(copied[name], tensor) for name, tensor in began.items())
    assert not same_weights(seen.reference, model)


def assert_resumes(files, folder, after: int, batches: int, make, **settings) -> None:
    """Compare a run that resumes after `after` batches with the uninterrupted one: equal losses and weights."""
    whole, rest = Recorder(folder, batches=(after,)), Recorder()
    settings |= {"max_epochs": 1, "default_root_dir": folder}
    model = fitted(CASE, files, *make(), whole, **settings)
    resumed = fitted(CASE, files, *make(), rest, **settings, ckpt_path=folder / f"batch{after}.ckpt")
    assert len(whole.losses) == batches and rest.losses == whole.losses[after + 1 :] and same_weights(resumed, model)


def test_a_resumed_run_has_the_reference_of_its_start(corpus_files, tmp_path):
    def callbacks():  # rewards begin before coverage, whose gate is no weight
        schedule = {"gamma": 0.7, "start_step": 2, "ramp_steps": 3}
        reward = SelfCritical(samples=2, advantage="group", kl=0.5, mask_truncated=True, **schedule)
        return [reward, CoverageAnnealing(start_step=3)]

    assert_resumes(corpus_files, tmp_path, 4, 7, callbacks)
    (tmp_path / FILE).unlink()
    with pytest.raises(UserError, match=r"reference.ckpt: not found.*resume with kl 0, or start another run"):
        fitted(CASE, corpus_files, *callbacks(), ckpt_path=tmp_path / "batch4.ckpt", default_root_dir=tmp_path)


@pytest.mark.parametrize("accumulate, after", [(1, 4), (2, 5)])
def test_a_run_that_resumes_between_updates_of_a_batch_makes_the_same_steps(accumulate, after, corpus_files, tmp_path):
    def callbacks():
        return [SelfCritical(samples=2, advantage="group", updates=3, clip=(0.01, 0.01), kl=0.1, gamma=0.9)]

    # seven batches, three times each
    assert_resumes(corpus_files, tmp_path, after, 21, callbacks, accumulate_grad_batches=accumulate)


def test_updates_need_data_that_repeats_its_batches_and_the_copy_shares_what_is_not_trained(corpus_files):
    model, data, trainer = CASE.build_model(), CASE.build_data(corpus_files), trainer_with()
    callback, trainer.datamodule = SelfCritical(samples=2, advantage="group", updates=2), object()
    with pytest.raises(ValueError, match="object does not repeat batches by `repeats`, so updates must be 1"):
        callback.setup(trainer, model, "fit")
    trainer.datamodule = data
    callback.setup(trainer, model, "fit")
    assert data.repeats == 2
    callback.teardown(trainer, model, "fit")
    assert data.repeats == 1
    model, _ = first_batch(CASE, corpus_files)
    model.network.embedding.requires_grad_(False)
    reference = frozen_copy(model)
    assert reference.network.embedding.weight is model.network.embedding.weight
    assert reference.tokenizer is model.tokenizer
    others = [p for p in model.parameters() if p.requires_grad]
    assert others and {id(p) for p in others}.isdisjoint(map(id, reference.parameters()))


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_the_reference_of_a_model_with_adapters_is_that_model_without_them(kind, corpus_files, texts, tmp_path):
    peft = pytest.importorskip("peft", reason="needs the extra lora")
    folder = str(make_summarizer(kind, tmp_path / kind, [*texts, "summarize:"], 64))
    sizes = {"max_source": 64, "max_target": 8, "batch_size": 4}
    data = PretrainedSummarizerData(Files(**corpus_files), checkpoint=folder, cache_dir=tmp_path, **sizes)
    torch.manual_seed(0)
    decoding = {"beam_size": 2, "min_length": 2, "max_length": 6}
    encoder = CheckpointOptions(folder, lora_rank=2, lora_alpha=8.0)
    model = PretrainedSummarizer(encoder, decoding=decoding, optimizer=AdamWOptions(lr=0.1))
    seen, callback = Checkpoint(), SelfCritical(samples=2, advantage="group", kl=0.5)
    trainer_with(callback, seen, max_steps=3, limit_val_batches=0, default_root_dir=tmp_path).fit(model, data)
    batch = next(iter(data.train_dataloader()))
    options = callback.options(model)
    drawn = model.sample(batch, options)
    with torch.no_grad(), without_dropout(model):
        trained = model.log_probs(batch, drawn, options)
        for layer in model.modules():
            if isinstance(layer, peft.tuners.tuners_utils.BaseTunerLayer):
                layer.enable_adapters(False)
        without = model.log_probs(batch, drawn, options)
        reference = seen.reference.log_probs(batch, drawn, options)
    torch.testing.assert_close(reference, without, rtol=1e-5, atol=1e-5)
    assert (trained - without).abs().max() > 1e-3
    # the copy costs the adapters alone, in memory and in the file
    adapters = {name for name, p in model.named_parameters() if "lora_" in name}
    shared = {name for name, p in model.named_parameters() if p is seen.reference.get_parameter(name)}
    assert shared == {name for name, _ in model.named_parameters()} - adapters
    assert set(torch.load(tmp_path / FILE, weights_only=True)["state_dict"]) & (shared | adapters) == adapters
