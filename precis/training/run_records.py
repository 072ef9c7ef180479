"""Callbacks and loggers that write the run folder, in the order in which Lightning calls them."""

import os
import re
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import LearningRateMonitor
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_info, rank_zero_warn

from callbacks import DivergenceCheck, GracefulStop, GradientNorm, PredictionWriter, Previews, StartFrom, Throughput
from callbacks.schedules import Switch
from datamodules.text.lines import counted
from lightning_modules.checkpoints import read_checkpoint
from lightning_modules.lightning_internals import may_stop_early
from precis.config.run_config import read_config
from precis.runs.metrics_file import MetricsRecord, RunCSVLogger
from precis.runs.prediction_files import SPLITS, predictions_path, source_name
from precis.runs.run_folder import RunRecord, TruncationTable
from precis.runs.tracking import WandbRecord, best_score, wandb_logger
from precis.training.requeue import requeue
from precis.training.run_progress import StateRecord
from precis.training.run_start import RunStart
from precis.trials.search_folder import is_search, read_search


def run_records(start: RunStart, is_summarizer: bool) -> tuple[list[Callback], list[Logger]]:
    """Return callbacks and loggers that write to the run folder; some only for summarizers, not discourse parsers."""
    if start.dry_run:
        return [start.dry_run], []  # only the callback that prints the report
    callbacks: list[Callback] = []
    loggers: list[Logger] = []
    if start.command == "fit":
        callbacks = [TruncationTable(start.folder)] if is_summarizer else []
        loggers = [RunCSVLogger(start.folder)]
        callbacks += _training_records(start, is_summarizer, loggers[0])  # `MetricsRecord` needs the logger
    elif is_summarizer:
        callbacks = _test_records(start)
    # A test is logged to the W&B run of the training, if there was one.
    is_tracked = start.command == "fit" or (start.command == "test" and (start.folder / "wandb" / "run_id").is_file())
    if start.config.wandb == "off" or not is_tracked:
        return callbacks, loggers
    record = yaml.safe_load(start.record) if start.command == "fit" else read_config(start.folder)  # of the training
    loggers.append(wandb_logger(start.folder, start.config.wandb, start.config.wandb_project, record))
    callbacks.append(WandbRecord(start.folder, record, start.config.wandb_models))
    if start.command == "fit":
        callbacks.append(LearningRateMonitor("step"))
    return callbacks, loggers


def _training_records(start: RunStart, is_summarizer: bool, logger: RunCSVLogger) -> list[Callback]:
    """Return the callbacks of `precis fit` in the order of their calls: `RunRecord` fills the run folder first."""
    folder, config = start.folder, start.config
    callbacks: list[Callback] = [RunRecord(folder, start.record), DivergenceCheck(folder), GradientNorm(), Throughput()]
    callbacks += [StateRecord(folder), _graceful_stop(start)]
    if config.previews and is_summarizer:
        callbacks.append(Previews(folder / "previews", documents=config.previews))
    callbacks.append(MetricsRecord(logger))  # stores the number of rows of metrics.csv in each checkpoint
    if start.source:
        callbacks.append(StartFrom(start.source))  # loads the weights of another run
    if trial_number(folder) is not None:  # the run of a search
        callbacks.append(TrialReport(folder))
    return callbacks


def _graceful_stop(start: RunStart) -> GracefulStop:
    """Return the callback that saves a checkpoint on signals, and requeues a SLURM job unless a sweep does so."""
    folder, config = start.folder, start.config
    resume = shlex.join(["precis", "fit", "--run", str(folder), *start.trust])
    in_job = "SLURM_JOB_ID" in os.environ
    in_sweep = os.environ.get("PRECIS_REQUEUE") == "off"  # its launcher requeues, and repeats the scheduler's SIGTERM
    on_stop = partial(requeue, folder) if in_job and not in_sweep else None
    last = folder / "checkpoints" / "last.ckpt"
    return GracefulStop(last, resume, save_every=config.save_every, patient=in_job or in_sweep, on_stop=on_stop)


def _test_records(start: RunStart) -> list[Callback]:
    """Return the callbacks that write predictions and truncation, to separate files for each split and corpus."""
    folder, command = start.folder, start.command
    corpus = yaml.safe_load(start.record)["data"]["init_args"]["corpus"]
    is_run = (folder / "config.yaml").is_file()
    run_corpus = read_config(folder)["data"]["init_args"].get("corpus") if is_run else corpus  # no run: compares equal
    source = source_name(run_corpus, corpus)  # name of a corpus other than the run's; None otherwise
    path = start.config.out or predictions_path(folder, command, source)
    rank_zero_info(f"predictions: {path}")
    origin = {"command": shlex.join(["precis", *sys.argv[1:]]), "split": SPLITS[command], "corpus": corpus}
    weights = Path(start.config.ckpt_path)
    checkpoint = describe_checkpoint(weights) if weights.is_file() else None  # not a file: "best" or "last"
    return [PredictionWriter(path, checkpoint, origin), TruncationTable(folder, source)]


def describe_checkpoint(path: Path) -> dict[str, Any]:
    """Print and return the step of a checkpoint, and its switches (values with a schedule), maybe not yet final."""
    content = read_checkpoint(path)
    switches = {name: Switch(*values) for name, values in content.get("switches", {}).items()}  # such as coverage
    states = [f"{name} {switch}" for name, switch in switches.items()]
    rank_zero_info("; ".join([f"{path}: trained for {counted(content['global_step'], 'step')}", *states]))
    if pending := [name for name, switch in switches.items() if not switch.fully_on]:  # not at the final value
        effect = "its scores are not those of the model that config.yaml describes"
        rank_zero_warn(f"{path} was saved before {', '.join(pending)} was fully on: {effect}")
    return {
        "checkpoint": str(path),
        "step": content["global_step"],
        "loss_weights": content.get("loss_weights", {}),
        "switches": {name: list(switch) for name, switch in switches.items()},  # [value, final value]
    }


def trial_number(run: Path) -> int | None:
    """Return the number of a search's trial from its run folder, `trial-NNN` in the search's folder; else None."""
    run = Path(run).resolve()
    match = re.fullmatch(r"trial-(\d+)", run.name)
    return int(match[1]) if match and is_search(run.parent) else None


class TrialReport(Callback):
    """Report the monitored value to Optuna after each validation, and the best checkpoint's value at the end, as score.

    If the pruner decides to end the trial, training ends as with `EarlyStopping`: the last checkpoint has the reason
    (`stopping_reason_message`), so that `--resume auto` does not continue the run.
    """

    def __init__(self, run: Path) -> None:
        self.search = read_search(Path(run).resolve().parent)
        self.number = trial_number(run)
        self.validations = 0
        self.stopping_reason_message = ""

    def state_dict(self) -> dict[str, Any]:
        return {"validations": self.validations}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.validations = state_dict["validations"]

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report a validation, and stop if the trial is pruned."""
        if trainer.sanity_checking:  # a few batches before training
            return
        self.validations += 1
        value = trainer.callback_metrics.get(self.search.section["metric"])
        prune = False
        if trainer.is_global_zero and value is not None:  # None: the metric was not logged
            prune = self.search.report(self.number, float(value), self.validations)
        # All ranks learn the decision of rank 0, since they have to stop at the same step.
        if trainer.strategy.reduce_boolean_decision(prune, all=False) and may_stop_early(trainer):  # past min_epochs
            self.stopping_reason_message = f"the search prunes the trial after validation {self.validations}"
            trainer.should_stop = True

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the score of the best checkpoint, or of the last validation if none was selected."""
        if not trainer.is_global_zero or trainer.interrupted:  # an interrupted trial will be continued
            return
        score = best_score(trainer)
        if score is None:
            score = trainer.callback_metrics.get(self.search.section["metric"])
        if score is not None:
            self.search.record(self.number, "score", float(score))
