"""The state of training in state.json, lines of progress, and the last lines: the score, and the next command."""

import shlex
from itertools import islice
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.utilities import rank_zero_info

from callbacks import PredictionWriter
from callbacks.results_path import results_path
from datamodules.summarization import VAL, SummarizationData
from datamodules.text.lines import counted
from datamodules.treebank import TreebankSplits
from lightning_modules.metrics.lead import beside_lead, lead_scores
from precis.files.data_files import read_json
from precis.runs.run_state import write_state
from precis.training.run_start import RunStart

INTERVAL = 60.0  # seconds between lines of progress, and between writes of state.json


class StateRecord(Callback):
    """Write state and step to state.json when training starts, every minute, and before each validation."""

    def __init__(self, run: Path) -> None:
        self.run = Path(run)
        self.training = False  # whether training has started
        self._written = 0.0  # time of the last write (`monotonic`)

    def write(self, trainer: Trainer, state: str) -> None:
        """Write state.json on rank 0."""
        self._written = monotonic()
        if trainer.is_global_zero:
            write_state(self.run, state, trainer.global_step)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.training = True
        self.write(trainer, "running")

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if monotonic() - self._written >= INTERVAL:
            self.write(trainer, "running")

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.training:
            self.write(trainer, "running")


class ProgressLines(Callback):
    """Print a line at the start of training, after each validation, and once a minute."""

    def __init__(self) -> None:
        self._printed = monotonic()  # time of the last line

    def _print(self, line: str) -> None:
        rank_zero_info(line)
        self._printed = monotonic()

    def _print_batch(self, stage: str, batch_idx: int, batches: float) -> None:
        if monotonic() - self._printed >= INTERVAL:
            self._print(f"{stage}: batch {batch_idx + 1:,} of {batches:,}")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        done = f" from step {trainer.global_step:,}" if trainer.global_step else ""
        self._print(f"training{done}: {counted(trainer.num_training_batches, 'batch')} per epoch")

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *place: Any) -> None:
        """Print epoch, batch, step and logged values, if the last line was printed at least a minute ago."""
        if monotonic() - self._printed >= INTERVAL:  # reading values more often would make training wait for the device
            batches = f"batch {place[2] + 1:,} of {trainer.num_training_batches:,}"  # place: outputs, batch, its index
            values = f"step {trainer.global_step:,}{_values(trainer, 'train/')}"
            self._print(f"epoch {trainer.current_epoch}: {batches}, {values}")

    def on_validation_batch_end(self, trainer: Trainer, pl_module: LightningModule, *place: Any) -> None:
        batches = trainer.num_sanity_val_batches if trainer.sanity_checking else trainer.num_val_batches
        self._print_batch("validation", place[2], batches[0])  # place: outputs, batch, batch index, loader index

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._print(f"validation after step {trainer.global_step:,}{_values(trainer, 'val/')}")

    def on_test_batch_end(self, trainer: Trainer, pl_module: LightningModule, *place: Any) -> None:
        self._print_batch("test", place[2], trainer.num_test_batches[0])

    def on_predict_batch_end(self, trainer: Trainer, pl_module: LightningModule, *place: Any) -> None:
        self._print_batch("summaries", place[2], trainer.num_predict_batches[0])


def _values(trainer: Trainer, prefix: str) -> str:
    """Return the progress bar's values whose names have a prefix, such as ", train/loss 2.31"; "" if there are none."""
    values = trainer.progress_bar_metrics.items()
    return "".join(f", {name} {value:.4g}" for name, value in values if name.startswith(prefix))


def conclude_training(trainer: Trainer, start: RunStart) -> None:
    """Print the number of steps, the best validation score (ROUGE-1 beside that of lead-1), and the command to test."""
    checkpoints: Any = trainer.checkpoint_callback
    data = trainer.datamodule
    conclusions = [f"trained for {counted(trainer.global_step, 'step')}"]
    score = getattr(checkpoints, "best_model_score", None)  # None if no validation selected a best model
    if score is not None and checkpoints.monitor == "val/rouge1" and isinstance(data, SummarizationData):
        documents = islice(data.scored_documents(VAL), _num_validated(trainer))
        lead = lead_scores(documents, data.language.code)  # of lead-1: the first sentence of each document
        conclusions.append(f"best validation {beside_lead(float(score), lead)}")
    elif score is not None:
        conclusions.append(f"best {checkpoints.monitor} {float(score):.4g}")
    command = "test" if _has_test_split(data) else "validate"
    _print_conclusion("; ".join(conclusions), ["precis", command, "--run", str(start.folder), *start.trust])


def _num_validated(trainer: Trainer) -> int:
    """Return how many documents a validation summarizes: `val_summaries`, rounded up to whole batches of all ranks."""
    limit = trainer.lightning_module.val_summaries  # number of documents; below 0 for no limit
    size = trainer.datamodule.eval_batch_size * trainer.world_size  # documents in a batch of all ranks together
    batches = sum(trainer.num_val_batches)  # of a rank; --trainer.limit_val_batches may limit them
    return size * (batches if limit < 0 else min(batches, ceil(limit / size)))


def conclude_scoring(trainer: Trainer, start: RunStart) -> None:
    """Print ROUGE-1 beside that of lead-1, and a command to go on with; nothing if no ROUGE-1 was computed."""
    writer = next((callback for callback in trainer.callbacks if isinstance(callback, PredictionWriter)), None)
    if writer is None or not trainer.is_global_zero:
        return
    results = read_json(results_path(writer.path))  # written beside the predictions
    rouge1 = next((value for name, value in results["scores"].items() if name.endswith("/rouge1")), None)
    if rouge1 is None:  # the documents have no references
        return
    next_commands = {"validate": ["precis", "test", "--run", start.folder, *start.trust]}
    next_commands["test"] = ["precis", "report", start.folder]
    if not _has_test_split(trainer.datamodule):
        next_commands["validate"] = ["precis", "compare", start.folder]
    # Predictions of another corpus, or in a file of --out, are not in the place where these commands look.
    is_default = writer.path.name in ("predictions.jsonl", "predictions.val.jsonl")
    command = next_commands[start.command] if is_default else ["precis", "evaluate", writer.path]
    _print_conclusion(f"{results['split']}: {beside_lead(rouge1, results.get('lead1'))}", list(map(str, command)))


def _has_test_split(data: Any) -> bool:
    if isinstance(data, TreebankSplits):
        return data.paths["test"] is not None
    return not isinstance(data, SummarizationData) or "test" in data.corpus.splits()


def _print_conclusion(conclusion: str, command: list[str]) -> None:
    rank_zero_info(f"{conclusion}\nnext: {shlex.join(command)}")
