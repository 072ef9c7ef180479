"""Checks early in training that monitored values are logged."""

from collections.abc import Sequence
from difflib import get_close_matches

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint

from datamodules.documents import UserError

LATER = ("train/", "lr-")  # logged from the first training batch on


class MonitorCheck(Callback):
    """Checks that the values which other callbacks monitor (`checkpoint.monitor`, `EarlyStopping`) are logged.

    Values of the validation are checked after Lightning's sanity check, those of training after the first optimizer
    step, and all of them after the first validation, in case there is no sanity check. It must come before the
    callbacks that it checks.

    Raises:
        UserError: during training, if a monitored value is not logged.
    """

    def __init__(self) -> None:
        self._validated = self._trained = False

    def on_sanity_check_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._check(trainer, [name for name in _monitors(trainer) if not name.startswith(LATER)])

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking and not self._validated:
            self._validated = True
            self._check(trainer, list(_monitors(trainer)))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        if not self._trained and (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            self._trained = True
            self._check(trainer, [name for name in _monitors(trainer) if name.startswith("train/")])

    @staticmethod
    def _check(trainer: Trainer, names: list[str]) -> None:
        logged = sorted(trainer.callback_metrics)
        for name in names:
            check_monitor(_monitors(trainer)[name], name, logged)


def check_monitor(argument: str, name: str, logged: Sequence[str]) -> None:
    """Check that a monitored value is among those that are logged.

    Raises:
        UserError: if it is not; the message has the argument that names it.
    """
    if name not in logged:
        close = get_close_matches(name, logged, n=1)
        hint = f"did you mean {close[0]}?" if close else "name one of those"
        known = ", ".join(logged) or "nothing"
        raise UserError(f"{argument} is {name!r}, which this run does not log; it logs {known}; {hint}")


def check_at_validations(trainer: Trainer) -> None:
    """Let `EarlyStopping` check its monitor after each validation, unless it is configured otherwise.

    By default, Lightning may check at the end of an epoch, where there is no new validation if `max_steps` or a resumed
    run ended the epoch. Must be called before training.
    """
    for callback in trainer.early_stopping_callbacks:
        if callback._check_on_train_epoch_end is None and not callback.monitor.startswith(LATER):
            callback._check_on_train_epoch_end = False


def _monitors(trainer: Trainer) -> dict[str, str]:
    """Return the monitored names, each with the argument that sets it."""
    names: dict[str, str] = {}
    for callback in trainer.callbacks:
        monitor = getattr(callback, "monitor", None)
        if isinstance(monitor, str):
            kind = type(callback).__name__
            is_checkpoint = isinstance(callback, ModelCheckpoint)
            names.setdefault(monitor, "checkpoint.monitor" if is_checkpoint else f"monitor of {kind}")
    return names
