"""Logged values of training and evaluation: means over the documents of all ranks."""

from collections.abc import Collection, Mapping
from typing import Any

import torch
from pytorch_lightning import LightningModule
from torch import Tensor

from datamodules.batch import Batch
from lightning_modules.lightning_internals import accumulates, has_logged, is_last_batch, logs_this_step


def log_training(
    module: LightningModule, values: Mapping[str, Tensor | float], batch: Batch, prog_bar: Collection[str] = ("loss",)
) -> None:
    """Log train/<name> for each value, a mean over the documents of this rank's batch, averaged over all ranks.

    With several ranks, values are only averaged and logged in steps that Lightning writes (`log_every_n_steps`), in the
    first step and in the last of each epoch; in other steps, `trainer.callback_metrics` keeps the previous values. All
    ranks must pass the same names in the same steps. The progress bar shows the values named in `prog_bar`.
    """
    trainer = module.trainer
    # `weight` is the number of documents / its mean over ranks, so the mean over ranks is a mean over all documents
    values = {name: value * batch.weight for name, value in values.items()}
    if trainer.world_size > 1:
        is_edge = is_last_batch(trainer) or not has_logged(trainer, "train/loss")  # last of the epoch, or first of all
        if not is_edge and (accumulates(trainer) or not logs_this_step(trainer)):
            return  # Lightning writes no values while gradients accumulate, or in steps between `log_every_n_steps`
        local = [torch.as_tensor(value, dtype=torch.float64, device=module.device) for value in values.values()]
        means = trainer.strategy.reduce(torch.stack(local), reduce_op="mean")  # all values in one communication
        values = dict(zip(values, means.unbind()))
    for name, value in values.items():
        module.log(f"train/{name}", value, batch_size=batch.batch_size, prog_bar=name in prog_bar)


def log_mean(module: LightningModule, name: str, value: Tensor | float, documents: int, **options: Any) -> None:
    """Log a mean over documents; Lightning averages it over all evaluation batches and ranks."""
    # Lightning divides the sum of batch sizes by `world_size` and rounds down; with this factor, the result is exact
    size = documents * module.trainer.world_size
    module.log(name, value, batch_size=size, sync_dist=True, on_epoch=True, **options)
