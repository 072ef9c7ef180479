"""Ends training that has diverged."""

from math import isfinite
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from datamodules.documents import UserError
from lightning_modules.checkpoints import find_not_finite
from lightning_modules.lightning_internals import accumulates, logs_this_step


class Diverged(UserError):
    """Error of training whose loss or weights are not finite."""


class DivergenceCheck(Callback):
    """End training that has diverged, before weights that are not finite are validated or saved.

    The loss is read in steps that Lightning logs, and the weights before each validation and checkpoint, so that other
    steps do not wait for the device. One infinite or NaN loss does not end training if the weights are finite: the
    gradient scaler of half precision skips such steps.

    Args:
        run: the run folder.

    Raises:
        Diverged: during training, on all ranks.
    """

    def __init__(self, run: Path) -> None:
        self.last = Path(run) / "checkpoints" / "last.ckpt"
        self._finite_note = ""  # part of the message: last finite loss, and its step; "" before the first
        self._was_finite = True

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs, batch, batch_idx) -> None:
        """End training if the logged loss is not finite twice in a row, or once and a weight is not finite either."""
        if accumulates(trainer) or not logs_this_step(trainer):  # no optimizer step was made, or it is not logged
            return
        loss = float(trainer.callback_metrics.get("train/loss", 0.0))  # mean over ranks; 0, so finite, if not logged
        if isfinite(loss):
            self._finite_note = f"; the last finite one that was logged is {loss:.4g}, at step {trainer.global_step:,}"
        elif not self._was_finite:
            raise self._error(trainer, f"the loss is {loss}")
        else:
            self._check_weights(trainer, pl_module, f"the loss is {loss}")
        self._was_finite = isfinite(loss)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit":
            self._check_weights(trainer, pl_module)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._check_weights(trainer, pl_module)

    def _check_weights(self, trainer: Trainer, pl_module: LightningModule, problem: str = "") -> None:
        """End training on all ranks if a weight is not finite; the message states the `problem`, or else the weight."""
        name = find_not_finite(dict(pl_module.named_parameters()))  # None if all are finite
        if trainer.strategy.reduce_boolean_decision(bool(name), all=False):  # on any rank: each may have a shard only
            raise self._error(trainer, problem or f"the weights are not finite{f' ({name})' if name else ''}")

    def _error(self, trainer: Trainer, problem: str) -> Diverged:
        """Return the error with the step, learning rate, last finite loss and last checkpoint (path `self.last`)."""
        rate = max(group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups)
        saved = f"{self.last} has the last weights that were saved" if self.last.is_file() else "nothing was saved yet"
        return Diverged(
            f"training has diverged: {problem} at step {trainer.global_step:,}, with a learning rate of "
            f"{float(rate):.3g}{self._finite_note}; {saved}; train again with a lower learning rate, a longer warm-up "
            "or a lower --trainer.gradient_clip_val, and in half precision with --trainer.precision 32-true"
        )
