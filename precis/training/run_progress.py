"""The state of training in state.json, lines of progress, and the last lines: the score, and the next command."""

import shlex
from pathlib import Path
from time import monotonic
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.utilities import rank_zero_info

from callbacks import PredictionWriter
from callbacks.results_path import results_path
from datamodules.corpora.corpus import as_document
from datamodules.summarization import VAL, SummarizationData
from datamodules.text.lines import counted
from lightning_modules.metrics.lead import beside_lead, lead_scores
from precis.files.data_files import read_json
from precis.runs.run_state import write_state
from precis.training.run_start import RunStart

INTERVAL = 60.0  # seconds


class StateRecord(Callback):
    """Write state and step to state.json once training has started: at once, each minute, and before validations."""

    def __init__(self, run: Path) -> None:
        self.run = Path(run)
        self.training = False
        self._written = 0.0

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
        self._printed = monotonic()

    def _print(self, line: str) -> None:
        rank_zero_info(line)
        self._printed = monotonic()

    def _is_due(self) -> bool:
        return monotonic() - self._printed >= INTERVAL

    def _print_batch(self, stage: str, batch_idx: int, batches: float) -> None:
        if self._is_due():
            self._print(f"{stage}: batch {batch_idx + 1:,} of {batches:,}")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        done = f" from step {trainer.global_step:,}" if trainer.global_step else ""
        self._print(f"training{done}: {trainer.num_training_batches:,} batches per epoch")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        if self._is_due():  # else no value is read, which would wait for the device
            batches = f"batch {batch_idx + 1:,} of {trainer.num_training_batches:,}"
            values = f"step {trainer.global_step:,}{_values(trainer, 'train/')}"
            self._print(f"epoch {trainer.current_epoch}: {batches}, {values}")

    def on_validation_batch_end(self, trainer: Trainer, pl_module: LightningModule, *place: Any) -> None:
        batches = trainer.num_sanity_val_batches if trainer.sanity_checking else trainer.num_val_batches
        self._print_batch("validation", place[2], batches[0])

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._print(f"validation after step {trainer.global_step:,}{_values(trainer, 'val/')}")

    def on_test_batch_end(self, trainer: Trainer, pl_module: LightningModule, *place: Any) -> None:
        self._print_batch("test", place[2], trainer.num_test_batches[0])

    def on_predict_batch_end(self, trainer: Trainer, pl_module: LightningModule, *place: Any) -> None:
        self._print_batch("summaries", place[2], trainer.num_predict_batches[0])


def _values(trainer: Trainer, prefix: str) -> str:
    """Return the values that a progress bar would show, after a comma."""
    values = trainer.progress_bar_metrics.items()
    return "".join(f", {name} {value:.4g}" for name, value in values if name.startswith(prefix))


def conclude_training(trainer: Trainer, start: RunStart) -> None:
    """Say how long a model was trained, what it scores on validation data, and how to test it."""
    best: Any = trainer.checkpoint_callback
    data = trainer.datamodule
    parts = [f"trained for {counted(trainer.global_step, 'step')}"]
    score = getattr(best, "best_model_score", None)
    if score is not None and best.monitor == "val/rouge1" and isinstance(data, SummarizationData):
        documents = map(as_document, data.documents(VAL).select(range(_validated(trainer))))
        lead = lead_scores(documents, data.language.code)
        parts.append(f"best validation {beside_lead(float(score), lead)}")
    elif score is not None:
        parts.append(f"best {best.monitor} {float(score):.4g}")
    _say(parts, ["precis", "test", "--run", str(start.folder)])


def _validated(trainer: Trainer) -> int:
    """Return the number of documents that validations summarize: whole batches of all ranks, see `Summarizer`."""
    data, limit = trainer.datamodule, trainer.lightning_module.val_summaries
    total, batch = len(data.documents(VAL)), data.eval_batch_size * trainer.world_size
    return total if limit < 0 else min(total, -(-limit // batch) * batch)


def conclude_scoring(trainer: Trainer, start: RunStart) -> None:
    """Say what a model scores on the documents that it has summarized, and what shows more of it."""
    writer = next((one for one in trainer.callbacks if isinstance(one, PredictionWriter)), None)
    if writer is None or not trainer.is_global_zero:
        return
    results = read_json(results_path(writer.path))
    rouge1 = next((value for name, value in results["scores"].items() if name.endswith("/rouge1")), None)
    if rouge1 is None:
        return
    following = {"validate": ["precis", "test", "--run", start.folder], "test": ["precis", "report", start.folder]}
    is_own = writer.path.name in ("predictions.jsonl", "predictions.val.jsonl")
    command = following[start.command] if is_own else ["precis", "evaluate", writer.path]
    _say([f"{results['split']}: {beside_lead(rouge1, results.get('lead1'))}"], list(map(str, command)))


def _say(parts: list[str], command: list[str]) -> None:
    rank_zero_info(f"{'; '.join(parts)}\nnext: {shlex.join(command)}")
