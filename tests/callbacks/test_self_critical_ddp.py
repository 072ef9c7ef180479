"""Self-critical training on two processes with batch size b is that on one with 2b."""

import zlib
from dataclasses import fields
from pathlib import Path

import pytest
import test_ddp
import torch
from cases import BY_NAME
from pytorch_lightning import seed_everything
from pytorch_lightning.callbacks import LambdaCallback
from quiet_trainer import quiet_trainer
from test_ddp import Recorder, assert_equals_one_process, run_on_one_and_two
from torch.nn.functional import pad

from callbacks import SelfCritical
from datamodules.batch import Batch
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.summarizer import Samples

pytestmark = pytest.mark.integration

BATCH = 4
SAVED, LAST = 3, 6  # optimizer steps; the first lies between two updates with the same samples
# model, advantage, credit, batches accumulated, updates: every class of generative models
RUNS = [(name, "greedy", "summary", 1, 1) for name in ("agents-m7", "bertsum-abs", "graphsum", "pegasus", "pointer")]
RUNS += [("rstformer", "leave_one_out", "summary", 1, 1), ("pointer", "leave_one_out", "reward_to_go", 2, 1)]
RUNS += [("pointer", "group", "summary", 2, 2)]


def one(batch: Batch, index: int) -> Batch:
    values = {f.name: getattr(batch, f.name) for f in fields(batch)}
    for name, value in values.items():
        if isinstance(value, list | torch.Tensor) and len(value) == batch.batch_size:
            values[name] = value[index : index + 1]
    return type(batch)(**values)


def by_document(model):
    """A model whose draws are a function of the document, not of the process and the batch that it is in."""
    draw, draw_with_log_probs = model.sample, getattr(model, "sample_with_log_probs", None)

    def padded(parts: list[torch.Tensor]) -> torch.Tensor:
        longest = max(part.shape[2] for part in parts)
        return torch.cat([pad(part, (0, longest - part.shape[2])) for part in parts])

    def each(batch: Batch, options: DecodingOptions, draw) -> list:
        made = []
        for index, name in enumerate(batch.ids):
            torch.manual_seed(zlib.crc32(name.encode()))
            made.append(draw(one(batch, index), options))
        return made

    def sample(batch: Batch, options: DecodingOptions) -> Samples:
        tokens, lengths = zip(*each(batch, options, draw))
        return Samples(padded(tokens), torch.cat(lengths))

    def sample_with_log_probs(batch: Batch, options: DecodingOptions) -> tuple[Samples, torch.Tensor | None]:
        samples, log_probs = zip(*each(batch, options, draw_with_log_probs))
        tokens, lengths = zip(*samples)
        return Samples(padded(tokens), torch.cat(lengths)), None if options.greedy_first else padded(log_probs)

    model.sample = sample
    if draw_with_log_probs:
        model.sample_with_log_probs = sample_with_log_probs
    return model


def train(files: dict[str, str], folder: Path, rank: int, world: int) -> None:
    results = []
    for name, advantage, credit, accumulate, updates in RUNS:
        reuse = {"updates": updates, "kl": 0.3, "clip": (0.01, 0.01)} if updates > 1 else {}
        seed_everything(5, verbose=False)
        case = BY_NAME[name]
        recorder, data = Recorder(), case.build_data(files, batch_size=BATCH // world)
        model = by_document(case.build_model(**case.repeatable))
        reward = SelfCritical(samples=3, advantage=advantage, credit=credit, gamma=0.9, **reuse)
        quiet_trainer(
            reward, recorder, strategy="ddp" if world > 1 else "auto", devices=world, precision=test_ddp.PRECISION,
            max_steps=4, limit_val_batches=0, accumulate_grad_batches=accumulate, gradient_clip_val=2.0,
            default_root_dir=folder / f"{world}",
        ).fit(model, data)  # fmt: skip
        results.append({"losses": recorder.losses, "gradients": recorder.gradients, "weights": model.state_dict()})
    if world > 1:
        results.append([weights_after(files, folder, saved) for saved in (None, SAVED)])
    torch.save(results, folder / f"{world}-{rank}.pt")


def weights_after(files: dict[str, str], folder: Path, resume_at: int | None) -> dict[str, torch.Tensor]:
    """Return the weights after LAST steps on two processes, with dropout and draws; saved, or resumed, at a step."""
    seed_everything(5, verbose=False)
    case, checkpoint = BY_NAME["pointer"], folder / "saved.ckpt"
    data = case.build_data(files, batch_size=BATCH // 2)
    reward = SelfCritical(samples=3, advantage="group", updates=2, kl=0.3)

    def save(trainer, *_) -> None:
        if trainer.global_step == SAVED and not resume_at:
            trainer.save_checkpoint(checkpoint)

    options = {"strategy": "ddp", "devices": 2, "max_steps": LAST, "limit_val_batches": 0}
    options["default_root_dir"] = folder / "resumed"
    model, saving = case.build_model(), LambdaCallback(on_train_batch_end=save)
    quiet_trainer(reward, saving, **options).fit(model, data, ckpt_path=checkpoint if resume_at else None)
    return model.state_dict()


def process(files: dict[str, str], folder: Path, rank: int, world: int, port: int) -> None:
    test_ddp.run_all = train  # what it calls once the process knows of the others
    test_ddp.process(files, folder, rank, world, port)


@pytest.fixture(scope="module")
def results(server, corpus_files, tmp_path_factory):
    from test_self_critical_ddp import process as target  # by the name under which a new process finds it

    folder = tmp_path_factory.mktemp("self-critical")
    for name in {run[0] for run in RUNS}:
        BY_NAME[name].build_data(corpus_files).prepare_data()
    return run_on_one_and_two(server, target, corpus_files, folder)


@pytest.mark.parametrize("run", range(len(RUNS)), ids=["-".join(run[:3]) for run in RUNS])
def test_two_processes_equal_one(results, run):
    first, second, alone = (result[run] for result in results)
    # an epoch has seven batches, with two updates fourteen
    assert len(alone["losses"]) == {(1, 1): 4, (2, 1): 7, (2, 2): 8}[RUNS[run][3:]] and len(alone["gradients"]) == 4
    assert_equals_one_process(first, second, alone)


def test_a_training_on_two_processes_resumes_bit_for_bit(results):
    start = BY_NAME["pointer"].build_model().state_dict()
    for whole, resumed in (result[-1] for result in results[:2]):
        assert all(torch.equal(tensor, resumed[name]) for name, tensor in whole.items())
        assert any((whole[name] != tensor).any() for name, tensor in start.items())
