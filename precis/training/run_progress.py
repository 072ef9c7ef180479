"""The state of training in state.json, and progress: a bar on a terminal, lines elsewhere."""

from pathlib import Path
from time import monotonic
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.utilities import rank_zero_info

from precis.runs.run_state import write_state

INTERVAL = 60.0  # seconds


class StateRecord(Callback):
    """Write the state and step of training to state.json: at its first step, once a minute, and before validations.

    Args:
        run: the run folder.

    Attributes:
        training: whether training has started; a run that was refused before keeps its state.
    """

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
