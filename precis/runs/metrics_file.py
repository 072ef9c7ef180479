"""metrics.csv: all logged values of a run, continued without gaps and duplicates after resuming."""

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from lightning_fabric.utilities.apply_func import convert_tensors_to_scalars
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.loggers.csv_logs import ExperimentWriter
from pytorch_lightning.utilities import rank_zero_warn

from datamodules.atomic_write import atomic_file
from datamodules.documents import UserError
from lightning_modules.lightning_internals import accumulates, logs_this_step, values_to_log
from precis.runs.run_folder import check_not_removed

KEY = "metrics"  # key in a checkpoint of what `MetricsRecord` adds


class _AppendingWriter(ExperimentWriter):
    """Writer that appends to an existing metrics.csv, which Lightning's writer deletes, and counts its rows."""

    rows = 0  # of the file; a new one has none

    def _check_log_dir_exists(self) -> None:
        """Create the folder, or read names of columns and number of rows from its file; called by the constructor."""
        os.makedirs(self.log_dir, exist_ok=True)
        if os.path.isfile(self.metrics_file_path):
            self.metrics_keys, rows = _read_rows(Path(self.metrics_file_path))
            self.rows = len(rows)

    def save(self) -> None:
        self.rows += len(self.metrics)  # the rows that were logged since the last `save`
        super().save()

    def _rewrite_with_new_header(self, fieldnames: list[str]) -> None:
        """Add columns to the file atomically; Lightning truncates it first, and would lose all rows on a full disk."""
        path = Path(self.metrics_file_path)
        _write_rows(path, fieldnames, _read_rows(path)[1])  # [1]: the rows, without the old names of columns


class RunCSVLogger(CSVLogger):
    """metrics.csv in the run folder itself; a resumed run appends to it."""

    def __init__(self, run: Path) -> None:
        super().__init__(save_dir=str(run), name="", version="")  # no subfolders
        self.path = Path(run) / "metrics.csv"

    @property
    def experiment(self) -> Any:
        if self._experiment is None:
            self._experiment = _AppendingWriter(log_dir=self.root_dir)
        return self._experiment

    def save(self) -> None:
        """Append the logged values to the file; raise a `UserError` if that fails."""
        try:
            super().save()
        except OSError as error:
            check_not_removed(self.path.parent)  # raises a clearer error if it was removed
            command = f"precis fit --run {quote(str(self.path.parent))}"
            remedy = f"make room or give permission, then resume the run with `{command}`"
            raise UserError(f"{self.path}: cannot be written ({error.strerror or error}); {remedy}") from None

    def keep_rows_of(self, checkpoint: Mapping[str, Any]) -> None:
        """Delete the rows that were logged after a checkpoint, from which the run is about to be resumed."""
        if not self.path.is_file():
            return
        columns, rows = _read_rows(self.path)
        count = checkpoint[KEY]["rows"]  # number of rows at the checkpoint, from `MetricsRecord`
        if len(rows) < count:
            rank_zero_warn(f"{self.path}: {count - len(rows)} of the checkpoint's {count} rows are missing")
        _write_rows(self.path, columns, rows[:count])


class MetricsRecord(Callback):
    """Add the number of rows of metrics.csv to each checkpoint.

    Lightning logs the values of a training step only after the hook in which the checkpoint of that step is written.
    These values are stored in the checkpoint and logged when a run is resumed from it.
    """

    def __init__(self, logger: RunCSVLogger) -> None:
        self.logger = logger

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add the number of `rows`, and the values that Lightning will log only after this hook (`pending`)."""
        rows = 0
        if trainer.is_global_zero:  # the only rank that writes metrics.csv
            self.logger.save()  # rows that were logged but not written yet count too
            rows = self.logger.experiment.rows
        checkpoint[KEY] = {"rows": rows, "pending": pending_row(trainer)}

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Log the pending values, which Lightning would have logged if the run had not ended."""
        if pending := checkpoint[KEY]["pending"]:  # values of the checkpoint's step, or None
            for logger in trainer.loggers:
                logger.log_metrics(pending["values"], step=pending["step"])
                logger.save()


def pending_row(trainer: Trainer) -> dict[str, Any] | None:
    """Return `values` by name and `step` of a training step that Lightning logs after its checkpoint; None if none."""
    # In the hook at the end of a batch, the batch is processed but not yet completed; Lightning logs after the hook.
    progress = trainer.fit_loop.epoch_loop.batch_progress.total
    in_hook = progress.completed != progress.processed
    if not in_hook or accumulates(trainer) or not logs_this_step(trainer):  # logged already, or never
        return None
    values, step = values_to_log(trainer)
    return {"values": {"epoch": trainer.current_epoch} | convert_tensors_to_scalars(values), "step": step}


def _read_rows(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Return column names, and rows as dictionaries by column name, without a last line that a kill has truncated."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        rows = [row for row in reader if None not in row.values()]  # None where a line has too few cells
        return list(reader.fieldnames or []), rows  # no names in an empty file


def _write_rows(path: Path, names: Sequence[str], rows: list[dict[str, str]]) -> None:
    with atomic_file(path) as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
