"""`precis fit --dry-run`: shapes of the first batch, memory and time of training, without a run folder."""

import resource
import time
from dataclasses import fields, is_dataclass
from math import ceil, inf, isfinite
from statistics import median
from typing import Any

import torch
from jsonargparse import Namespace
from pytorch_lightning import Callback, LightningModule, Trainer
from rich.console import Console
from rich.filesize import decimal as format_size
from rich.table import Table
from torch import Tensor

from datamodules.text.lines import counted
from precis.runs.runs import format_seconds

STEPS = 4  # batches of training and of validation, the first of which is not timed


class DryRunReport(Callback):
    """Measure the batches of a `fast_dev_run`, and estimate memory and time of training if all are as large."""

    def __init__(self, planned: Namespace) -> None:
        self.planned = planned  # options of the trainer for the whole training
        self.shapes: dict[str, str] = {}  # of the tensors of the first batch, by field
        self.seconds: dict[str, list[float]] = {"training": [], "validation": []}  # of each batch
        self._start = 0.0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, *_: Any) -> None:
        self.shapes = self.shapes or batch_shapes(batch)
        self._start = time.monotonic()

    on_validation_batch_start = on_train_batch_start

    def on_train_batch_end(self, *_: Any) -> None:
        self._measure("training")

    def on_validation_batch_end(self, *_: Any) -> None:
        self._measure("validation")

    def _measure(self, stage: str) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # waits for kernels, which run after the call that starts them
        self.seconds[stage].append(time.monotonic() - self._start)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print shapes of the first batch and the estimate, on rank 0."""
        if not trainer.is_global_zero:
            return
        table = Table(title="dry run: nothing was written except data caches", show_header=False)
        for name, shape in self.shapes.items():
            table.add_row(f"batch.{name}", shape)
        table.add_section()
        for name, text in self.estimate(trainer, pl_module).items():
            table.add_row(name, text)
        Console().print(table)

    def estimate(self, trainer: Trainer, module: LightningModule) -> dict[str, str]:
        """Return an estimate of the whole training as texts by name: parameters, memory, steps and times."""
        planned, batches_per_step = self.planned, trainer.accumulate_grad_batches  # `planned`: options of the Trainer
        batches = limit_batches(len(trainer.datamodule.train_dataloader()), planned.limit_train_batches)
        # In Lightning, -1 is no limit; if neither epochs nor steps are limited, it trains 1,000 epochs.
        max_steps = inf if planned.max_steps in (None, -1) else planned.max_steps
        default_epochs = 1000 if max_steps == inf else inf
        max_epochs = {None: default_epochs, -1: inf}.get(planned.max_epochs, planned.max_epochs)
        steps_per_epoch = max(1, ceil(batches / batches_per_step))  # the last step of an epoch may have fewer batches
        steps = min(steps_per_epoch * max_epochs, max_steps)
        step_seconds = self._typical_seconds("training") * min(batches_per_step, batches)

        parameters = sum(parameter.numel() for parameter in module.parameters())
        trained = sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
        figures = {
            "parameters": f"{parameters:,}, {trained:,} of them trained",
            "peak memory": f"{_peak_memory(trainer)}, measured on {counted(len(self.seconds['training']), 'batch')}",
            "steps": f"{steps_per_epoch:,} per epoch, {f'{steps:,}' if isfinite(steps) else 'no limit'} in all",
            "time of a step": f"{step_seconds:.2f} s",
            "training": f"about {format_seconds(steps * step_seconds)}" if isfinite(steps) else "without a limit",
        }
        if self.seconds["validation"]:  # "at most": after `val_summaries` documents, batches are not summarized
            batches = limit_batches(len(trainer.datamodule.val_dataloader()), planned.limit_val_batches)
            figures["one validation"] = f"at most {format_seconds(self._typical_seconds('validation') * batches)}"
        return figures

    def _typical_seconds(self, stage: str) -> float:
        """Return the median time of a batch, without the first one, in which libraries are initialized."""
        return median(self.seconds[stage][1:] or self.seconds[stage])


def prepare_dry_run(config: Namespace) -> DryRunReport:
    """Limit the trainer of a config to a few steps that write no run folder; return the callback that reports them."""
    report = DryRunReport(config.trainer.clone())  # the options of the real training, for the estimate
    config.trainer.fast_dev_run = STEPS  # Lightning's option for a few batches without checkpoints
    config.trainer.logger = False
    config.wandb = "off"
    config.previews = 0  # no example summaries after a validation
    return report


def limit_batches(batches: int, limit: int | float | None) -> int:
    """Return the number of batches of an epoch under Lightning's limit: a maximum (int), a share (float), or None."""
    if limit is None:
        return batches
    return int(batches * limit) if isinstance(limit, float) else min(batches, limit)


def batch_shapes(batch: Any) -> dict[str, str]:
    """Return, by field of a batch, shape and type of a tensor, such as "[8, 400] int64", or the length of a list."""
    shapes = {}
    for field in fields(batch) if is_dataclass(batch) else ():  # nothing for the batches of users' DataModules
        value = getattr(batch, field.name)
        if isinstance(value, Tensor):
            shapes[field.name] = f"{list(value.shape)} {str(value.dtype).removeprefix('torch.')}"
        elif isinstance(value, list | tuple):
            shapes[field.name] = counted(len(value), "item")
    return shapes


def _peak_memory(trainer: Trainer) -> str:
    """Return the peak memory so far, of the GPU or else of the process, as a text."""
    if trainer.strategy.root_device.type == "cuda":
        return f"{format_size(torch.cuda.max_memory_reserved())} of the GPU"
    return f"{format_size(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)} of the process"  # ru_maxrss: KiB
