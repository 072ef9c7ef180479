"""`precis fit --dry-run`: shapes of the first batch, memory and time of training, without a run folder."""

import resource
import time
from dataclasses import fields, is_dataclass
from statistics import median
from typing import Any

import torch
from jsonargparse import Namespace
from pytorch_lightning import Callback, LightningModule, Trainer
from rich.console import Console
from rich.filesize import decimal as format_size
from rich.table import Table
from torch import Tensor

from datamodules.documents import UserError
from datamodules.text.lines import counted
from precis.files.durations import format_seconds

Limit = int | float | None  # number of batches, share of an epoch
STEPS = 4  # batches of training and of validation; the first is not timed


class DryRunReport(Callback):
    """Measures the batches of a `fast_dev_run` and prints what the whole training would need.

    The estimate assumes that the other batches are as large as those measured.

    Args:
        max_epochs: number of epochs of the run; None or -1 if it is limited by steps alone.
        max_steps: number of steps of the run; -1 for no limit.
        limits: `limit_train_batches` and `limit_val_batches` of the run.
        val_check_interval, check_val_every_n_epoch: as in the trainer of the run.
    """

    def __init__(
        self,
        max_epochs: int | None,
        max_steps: int,
        limits: tuple[Limit, Limit] = (None, None),
        val_check_interval: Any = None,
        check_val_every_n_epoch: int | None = 1,
    ) -> None:
        self.max_epochs, self.max_steps, self.limits = max_epochs, max_steps, limits
        self.val_check_interval, self.check_val_every_n_epoch = val_check_interval, check_val_every_n_epoch
        self.shapes: dict[str, str] = {}
        self.seconds: dict[str, list[float]] = {"training": [], "validation": []}
        self._start = 0.0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self.shapes = self.shapes or batch_shapes(batch)
        self._start = time.monotonic()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._measure("training")

    def on_validation_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._start = time.monotonic()

    def on_validation_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._measure("validation")

    def _measure(self, stage: str) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # kernels run after the call that starts them
        self.seconds[stage].append(time.monotonic() - self._start)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero:
            print_report(self.shapes, self.estimate(trainer, pl_module))

    def estimate(self, trainer: Trainer, module: LightningModule) -> dict[str, str]:
        """Return the rows of the report: parameters, memory, steps and time."""
        batches = limit_batches(len(trainer.datamodule.train_dataloader()), self.limits[0])
        steps = max(1, -(-batches // trainer.accumulate_grad_batches))
        epochs = self.max_epochs if self.max_epochs not in (None, -1) else float("inf")
        total = min(steps * epochs, self.max_steps if self.max_steps != -1 else float("inf"))
        parameters = sum(parameter.numel() for parameter in module.parameters())
        trained = sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
        step = self._typical("training") * min(trainer.accumulate_grad_batches, batches)
        rows = {
            "parameters": f"{parameters:,}, {trained:,} of them trained",
            "memory at most": f"{_peak_memory(trainer)}, over {counted(len(self.seconds['training']), 'batch')}",
            "steps": f"{steps:,} per epoch, {_count(total)} in all",
            "time of a step": f"{step:.2f} s",
            "training": f"about {format_seconds(total * step)}" if total != float("inf") else "without a limit",
        }
        if self.seconds["validation"]:
            number = limit_batches(len(trainer.datamodule.val_dataloader()), self.limits[1])
            seconds = self._typical("validation") * number
            validations = None
            if total != float("inf"):
                epochs, rest = divmod(int(total), steps)
                validations = self._validations(batches, epochs, min(batches, rest * trainer.accumulate_grad_batches))
            repetitions = "" if validations is None else f", {counted(validations, 'time')}"
            rows["a validation"] = f"at most {format_seconds(seconds)}{repetitions}"
        return rows

    def _validations(self, batches: int, epochs: int, rest: int) -> int | None:
        """Return the number of validations in a training, None if they are spaced by time.

        Args:
            batches: number of batches of an epoch.
            epochs: number of complete epochs.
            rest: number of batches of a last, incomplete epoch.
        """
        interval = 1.0 if self.val_check_interval is None else self.val_check_interval
        if not isinstance(interval, (int, float)):
            return None
        if isinstance(interval, float):
            interval = max(1, int(batches * interval))                                       # in batches
        if self.check_val_every_n_epoch is None:
            return (epochs * batches + rest) // interval  # counted across epochs
        validations = epochs // self.check_val_every_n_epoch * (batches // interval)
        return validations + (rest // interval if (epochs + 1) % self.check_val_every_n_epoch == 0 else 0)

    def _typical(self, stage: str) -> float:
        """Return the median time of a batch, without the first one, which includes the initialization of libraries."""
        return median(self.seconds[stage][1:] or self.seconds[stage])


def prepare_dry_run(command: str, config: Namespace) -> DryRunReport:
    """Limit the trainer of a config to a few steps, and switch off everything that writes to a run folder.

    Raises:
        UserError: for another command than `fit`.
    """
    if command != "fit":
        raise UserError(f"--dry-run: precis {command} does not have this option; leave it out")
    trainer = config.trainer
    max_steps = -1 if trainer.max_steps is None else trainer.max_steps
    max_epochs = 1000 if trainer.max_epochs is None and max_steps == -1 else trainer.max_epochs  # Lightning's default
    limits = trainer.limit_train_batches, trainer.limit_val_batches
    report = DryRunReport(max_epochs, max_steps, limits, trainer.val_check_interval, trainer.check_val_every_n_epoch)
    trainer.fast_dev_run, trainer.logger = STEPS, False
    config.wandb, config.previews = "off", 0
    return report


def limit_batches(batches: int, limit: Limit) -> int:
    """Return how many of an epoch's batches are read: at most a number (int), a share (float), or all (None)."""
    if limit is None:
        return batches
    return int(batches * limit) if isinstance(limit, float) else min(batches, limit)


def batch_shapes(batch: Any) -> dict[str, str]:
    """Return the shape and type of each tensor of a batch, and the length of each list."""
    values = {field.name: getattr(batch, field.name) for field in fields(batch)} if is_dataclass(batch) else {}
    shapes = {}
    for name, value in values.items():
        if isinstance(value, Tensor):
            shapes[name] = f"{list(value.shape)} {str(value.dtype).removeprefix('torch.')}"
        elif isinstance(value, list | tuple):
            shapes[name] = f"{len(value)} items"
    return shapes


def print_report(shapes: dict[str, str], rows: dict[str, str]) -> None:
    """Print the shapes of the first batch and the estimates."""
    table = Table(title="dry run: nothing was written except data caches", show_header=False)
    for name, shape in shapes.items():
        table.add_row(f"batch.{name}", shape)
    table.add_section()
    for name, text in rows.items():
        table.add_row(name, text)
    Console().print(table)


def _count(total: float) -> str:
    return "no limit" if total == float("inf") else f"{total:,.0f}"


def _peak_memory(trainer: Trainer) -> str:
    if trainer.strategy.root_device.type == "cuda":
        return f"{format_size(torch.cuda.max_memory_reserved())} of the GPU"
    return f"{format_size(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)} of the process"
