"""Every model through train, save, load, resume, a gradient everywhere, learning by heart; what its seed decides."""

import json
import pickle
from dataclasses import replace
from types import MethodType

import pytest
import torch
from cases import BY_NAME, CASES, Case
from conftest import prepared
from pytorch_lightning import Callback, Trainer, seed_everything
from pytorch_lightning.callbacks import Checkpoint, GradientAccumulationScheduler, LambdaCallback
from quiet_trainer import quiet_trainer
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from callbacks import GracefulStop, SelfCritical
from lightning_modules.summarizer import weighted_sum
from precis.runs.run_folder import load_run
from precis.training.training import PrecisCLI
from tests.half_precision import skip_without_half_precision_lstm


class Recorder(Callback):
    """Losses as they come, and checkpoints after some batches, counted over all epochs, and after each validation."""

    def __init__(self, folder=None, batches=()):
        self.folder, self.batches = folder, batches
        self.losses: list[tuple[int, float]] = []  # number of the batch, loss
        self.validated: dict[int, float] = {}  # loss after so many batches

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        number = trainer.fit_loop.total_batch_idx
        self.losses.append((number, outputs["loss"].item()))
        if number in self.batches:
            trainer.save_checkpoint(self.folder / f"batch{number}.ckpt")

    def on_validation_end(self, trainer, pl_module):
        if trainer.sanity_checking:
            return
        number = trainer.fit_loop.total_batch_idx
        self.validated[number] = trainer.callback_metrics["val/loss"].item()
        if self.folder is not None:
            trainer.save_checkpoint(self.folder / f"validation{number}.ckpt")


def trainer_with(*callbacks: Callback, **arguments) -> Trainer:
    options = {"max_epochs": 2, "gradient_clip_val": 2.0, "num_sanity_val_steps": 1}
    options["enable_checkpointing"] = any(isinstance(callback, Checkpoint) for callback in callbacks)
    return quiet_trainer(*callbacks, **options | arguments)


def adam_with_schedule(module, total_steps=30, max_lr=0.02, **options):
    """As the command line combines `--optimizer` and `--lr_scheduler`."""
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr, total_steps=total_steps, **options)
    return PrecisCLI.configure_optimizers(module, optimizer, schedule)


def fit(case: Case, files, *callbacks: Callback, schedule=False, ckpt_path=None, **arguments):
    seed_everything(5, verbose=False)
    model, data = case.build_model(), case.build_data(files)
    if schedule:
        model.configure_optimizers = MethodType(adam_with_schedule, model)
    trainer_with(*case.callbacks(), *callbacks, **arguments).fit(model, data, ckpt_path=ckpt_path)
    return model, data


def same_weights(one, other) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


QUICK = ("bertsum", "pointer-coverage")  # one extractive and one generative model; the others in `make test-all`
every_model = pytest.mark.parametrize("case", [
    pytest.param(case, id=case.name, marks=[] if case.name in QUICK else pytest.mark.integration) for case in CASES
])  # fmt: skip
VALIDATED, SCHEDULED = {"val_check_interval": 3}, {"schedule": True, "accumulate_grad_batches": 2}
# Where training resumes is a matter of the loops: two models resume from everywhere, the others from the middle of an
# epoch and from a validation.
RESUMING = [
    *(pytest.param(case, VALIDATED, ("batch10", "validation2"), id=case.name, marks=pytest.mark.integration)
      for case in CASES if case.name not in QUICK),
    pytest.param(BY_NAME[QUICK[0]], VALIDATED, None, id=QUICK[0]),
    pytest.param(BY_NAME[QUICK[1]], SCHEDULED, None, id=QUICK[1]),
]  # fmt: skip


@pytest.mark.parametrize("case, arguments, names", RESUMING)
def test_every_parameter_has_a_gradient_and_training_resumes(case, arguments, names, corpus_files, tmp_path):
    missing = []

    def look(trainer, model, optimizer):
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        missing.append([name for name, p in trained if p.grad is None or not p.grad.any() or id(p) not in held])

    # of seven batches an epoch: in the middle of the first one, at its end, in the middle of the second one
    whole = Recorder(tmp_path, batches=(1, 6, 10))
    model, _ = fit(case, corpus_files, whole, LambdaCallback(on_before_optimizer_step=look), **arguments)
    # all callbacks have done what they do by the last step, which is the one that counts
    assert missing[-1] == []
    assert [number for number, _ in whole.losses] == list(range(14))
    checkpoints = sorted(tmp_path.glob("*.ckpt"))
    assert len(checkpoints) == 3 + len(whole.validated)
    for checkpoint in checkpoints if names is None else [tmp_path / f"{name}.ckpt" for name in names]:
        rest = Recorder()
        resumed, _ = fit(case, corpus_files, rest, **arguments, ckpt_path=checkpoint)
        done = int("".join(filter(str.isdigit, checkpoint.stem))) + 1
        assert rest.losses == whole.losses[done:], checkpoint.name
        later = {number: loss for number, loss in whole.validated.items() if number >= done}
        assert {number: loss for number, loss in rest.validated.items() if number in later} == later, checkpoint.name
        assert same_weights(resumed, model), checkpoint.name


@every_model
def test_each_step_is_that_of_one_large_batch(case, corpus_files):
    """Of seven batches an epoch, four are accumulated, then three; one of them has two documents instead of four."""
    seed_everything(5, verbose=False)
    model, data = case.build_model(**case.repeatable).double(), case.build_data(corpus_files)
    steps, ids = [], []

    def compare(trainer, *_):
        rows = {row["id"]: row for row in data.features("train")}
        trained = [p for p in model.parameters() if p.grad is not None]
        precision = trainer.precision_plugin
        with torch.enable_grad(), precision.forward_context():
            batch = precision.convert_input(data.collate([rows[name] for name in ids]))
            loss = weighted_sum(model.loss_terms(batch), model.loss_weights)
        for p, expected in zip(trained, torch.autograd.grad(loss, trained)):
            torch.testing.assert_close(p.grad, expected, rtol=1e-7, atol=1e-10)
        steps.append(len(ids))
        ids.clear()

    steps_seen = LambdaCallback(
        on_train_batch_start=lambda trainer, model, batch, *_: ids.extend(batch.ids), on_before_optimizer_step=compare
    )
    limits = {"max_epochs": 1, "limit_val_batches": 0, "accumulate_grad_batches": 4, "precision": "64-true"}
    trainer_with(steps_seen, **limits).fit(model, data)
    assert len(steps) == 2 and sum(steps) == 26


@pytest.mark.parametrize("limit", [{"max_epochs": 1}, {"max_steps": 3}, {"max_steps": 7}, {"max_steps": 9}], ids=str)
def test_continues_where_training_had_ended(limit, corpus_files, tmp_path):
    case, last = CASES[-1], GracefulStop(tmp_path / "last.ckpt")  # this is a matter of the loops, not of the model
    whole, part, rest = Recorder(), Recorder(), Recorder()
    both = [GradientAccumulationScheduler({1: 2}), last]  # seven steps, then four
    model, _ = fit(case, corpus_files, whole, *both, limit_val_batches=0)
    fit(case, corpus_files, part, *both, limit_val_batches=0, **limit)
    resumed, _ = fit(case, corpus_files, rest, *both, limit_val_batches=0, ckpt_path=last.path)
    assert part.losses + rest.losses == whole.losses and part.losses and rest.losses
    assert same_weights(resumed, model)


@every_model
def test_losses_follow_the_seed_and_not_the_loader_processes(case, corpus_files):
    runs, before = [], set(torch.multiprocessing.active_children())
    for seed, workers in ((5, 0), (5, 2), (6, 0)):
        seed_everything(seed, verbose=False)
        recorder, data = Recorder(), case.build_data(corpus_files, num_workers=workers)
        trainer_with(recorder, max_epochs=1, limit_val_batches=0).fit(case.build_model(), data)
        runs.append(recorder.losses)
    assert runs[0] == runs[1] != runs[2] and len(runs[0]) == 7
    assert set(torch.multiprocessing.active_children()) <= before  # those of loaders have ended
    rows = [data.features("train")[0]]
    pickled = pickle.dumps(data.train_dataloader().loader.collate_fn)  # for processes that are not forked
    assert repr(pickle.loads(pickled)(rows)) == repr(data.collate(rows))


@pytest.mark.integration
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_learns_a_handful_of_documents_by_heart(case, corpus_files):
    seed_everything(5, verbose=False)
    (model_args, data_args), epochs = case.overfit_args, case.overfit_epochs
    model = case.build_model(**model_args)
    data = case.build_data(corpus_files, **data_args, max_train=4)  # one batch: an epoch is a step
    # a rate that falls to almost nothing: at a constant one, the last weights depend on how the processor rounds
    settling = {"total_steps": epochs, "max_lr": 0.01, "pct_start": 0.1}
    model.configure_optimizers = MethodType(lambda self: adam_with_schedule(self, **settling), model)
    if hasattr(model, "decoding"):
        # a search with early stopping may end with two improbable summaries that end early, which depends on rounding
        model.decoding = replace(model.decoding, early_stopping=False)
    recorder = Recorder()
    trainer_with(recorder, max_epochs=epochs, limit_val_batches=0, gradient_clip_val=0.5).fit(model, data)
    assert recorder.losses[-1][1] < case.overfit_loss < recorder.losses[0][1]
    summaries = model.eval().summarize(next(iter(data.train_dataloader())))
    assert len(summaries) == 4
    for summary in model.scored(summaries):
        assert summary.scores["rouge2"] == summary.scores["rougeLsum"] == 100, summary


@pytest.mark.integration
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_run_folder_gives_back_the_model_its_data_and_their_seeds(case, corpus_files, tmp_path, precis):
    run = tmp_path / "run"
    trainer = ["accelerator=cpu", "max_steps=4", "enable_progress_bar=false", "enable_model_summary=false"]
    arguments = [*case.arguments(corpus_files), *(f"--trainer.{argument}" for argument in trainer)]
    arguments += ["--seed_everything=7", "--data.seed=4"] if case is CASES[0] else ["--seed_everything=7"]
    precis("fit", *arguments, "--wandb=off", "--previews=0", f"--run_dir={run}").succeeded()
    record = json.loads((run / "environment.json").read_text(encoding="utf-8"))
    assert (record["seed"], record["data_seed"]) == (7, 4 if case is CASES[0] else 7)
    assert "seed_everything: 7" in (run / "config.yaml").read_text(encoding="utf-8")
    loaded = load_run(run, run / "checkpoints" / "last.ckpt")
    saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    torch.testing.assert_close(loaded.model.state_dict(), saved, rtol=0, atol=0)
    prepared_data = prepared(case.build_data(corpus_files))
    assert loaded.data.tokenizer.state() == prepared_data.tokenizer.state()
    for ours, theirs in zip(loaded.data.test_dataloader(), prepared_data.test_dataloader(), strict=True):
        for name, value in vars(ours).items():
            other = getattr(theirs, name)
            assert torch.equal(value, other) if isinstance(value, Tensor) else value == other, name
        assert [summary.id for summary in loaded.model.summarize(ours)] == ours.ids


@every_model
def test_trains_and_validates_in_half_precision_and_summarizes_in_any_mode(case, corpus_files):
    """Buffers that decoding uses again fit whatever mode comes next."""
    skip_without_half_precision_lstm(case.build_model())
    model, data = fit(case, corpus_files, max_steps=2, max_epochs=-1, precision="bf16-mixed", val_check_interval=2)
    data.setup("test")
    batch = next(iter(data.test_dataloader()))
    with torch.inference_mode():
        inside = model.summarize(batch)
    with torch.autocast("cpu", torch.bfloat16):
        half = model.summarize(batch)
    after = model.summarize(batch)
    assert [summary.id for summary in half] == batch.ids
    assert [summary.sentences for summary in after] == [summary.sentences for summary in inside]


@pytest.mark.parametrize("case, precision", [
    *((BY_NAME[name], precision) for name in QUICK for precision in ("bf16-true", "16-true", "64-true")),
    *(pytest.param(case, "16-true", marks=pytest.mark.integration) for case in CASES if case.name not in QUICK),
], ids=lambda value: getattr(value, "name", value))  # fmt: skip
def test_validates_summarizes_and_samples_in_true_precision(case, precision, corpus_files):
    """In a step of the trainer, which sets the default dtype, and called from Python, where it is float32."""
    seed_everything(5, verbose=False)
    model, data = case.build_model(), case.build_data(corpus_files)
    skip_without_half_precision_lstm(model)
    trainer_with(precision=precision, limit_val_batches=1).validate(model, data, verbose=False)
    batch = next(iter(data.val_dataloader()))
    assert [summary.id for summary in model.summarize(batch)] == batch.ids
    if hasattr(model, "sample"):
        for top_k in (0, 5):
            options = replace(model.decoding, sample=True, beam_size=3, top_k=top_k)
            samples = model.sample(batch, options)
            log_probs = model.log_probs(batch, samples, options)
            assert log_probs.shape == samples.tokens.shape and log_probs.isfinite().all()


def draws_of(run_seed: int, files: dict[str, str], **data) -> tuple[Tensor, dict[str, list]]:
    """Return the initial weights of a training, and the order of documents, samples and losses in it."""
    seed_everything(run_seed, verbose=False)
    case, recorder, draws = BY_NAME["pointer-coverage"], Recorder(), {"order": [], "samples": []}
    model = case.build_model(dropout=0.5)
    weights, draw = parameters_to_vector(model.parameters()).detach().clone(), model.sample

    def sample(batch, options):
        samples = draw(batch, options)
        draws["order"].append(batch.ids)
        draws["samples"].append(samples.tokens.tolist())
        return samples

    model.sample = sample
    callbacks = [recorder, SelfCritical(samples=2, gamma=0.5)]
    trainer_with(*callbacks, max_epochs=1, limit_val_batches=0).fit(model, case.build_data(files, **data))
    return weights, draws | {"losses": recorder.losses}


@pytest.mark.integration
def test_everything_random_follows_the_seed(corpus_files):
    (weights, one), (same, again), (others, other) = (draws_of(seed, corpus_files) for seed in (1, 1, 2))
    assert one == again and all(one[name] != other[name] for name in one)
    # all but biases and the like, which start at zero
    assert torch.equal(weights, same) and (weights != others).float().mean() > 0.9
    _, pinned = draws_of(2, corpus_files, seed=1)
    assert pinned["order"] == one["order"] and pinned["losses"] != one["losses"]
