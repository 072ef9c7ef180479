"""Checks early in training that monitored values are logged."""

from collections.abc import Sequence
from difflib import get_close_matches

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint

from datamodules.documents import UserError
from lightning_modules import lightning_internals

LATER = ("train/", "lr-")  # logged from the first training batch on


class MonitorCheck(Callback):
    """Checks early that the values which other callbacks monitor (`checkpoint.monitor`, `EarlyStopping`) are logged.

    Values of the validation are checked after Lightning's sanity check, or else after the first validation; those of
    training after the first optimizer step. It must come before the callbacks that it checks.

    Raises:
        UserError: during training, if a monitored value is not logged.
    """

    def __init__(self) -> None:
        self._checked: set[str] = set()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit":
            self._check(trainer, [name for name in _monitors(trainer) if not name.startswith(LATER)])

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            self._check(trainer, [name for name in _monitors(trainer) if name.startswith("train/")])

    def _check(self, trainer: Trainer, names: list[str]) -> None:
        for name in names:
            if name not in self._checked:
                check_monitor(_monitors(trainer)[name], name, sorted(trainer.callback_metrics))
                self._checked.add(name)


def check_monitor(argument: str, name: str, logged: Sequence[str]) -> None:
    """Raise a `UserError` with the argument that names a monitored value if it is not among those that are logged."""
    if name not in logged:
        close = get_close_matches(name, logged, n=1)
        hint = f"did you mean {close[0]}?" if close else "name one of those"
        names = ", ".join(logged) or "nothing"
        raise UserError(f"{argument} is {name!r}, which this run does not log; it logs {names}; {hint}")


def check_at_validations(trainer: Trainer) -> None:
    """Let `EarlyStopping` check its monitor after each validation, unless it is configured otherwise.

    By default, Lightning may check at the end of an epoch, where there is no new validation if `max_steps` or a resumed
    run ended the epoch. Must be called before training.
    """
    for callback in trainer.early_stopping_callbacks:
        if not callback.monitor.startswith(LATER):
            lightning_internals.check_at_validations(callback)


def _monitors(trainer: Trainer) -> dict[str, str]:
    """Return the monitored names, each with the argument that sets it."""
    names: dict[str, str] = {}
    for callback in trainer.callbacks:
        if isinstance(monitor := getattr(callback, "monitor", None), str):
            is_checkpoint = isinstance(callback, ModelCheckpoint)
            argument = "checkpoint.monitor" if is_checkpoint else f"monitor of {type(callback).__name__}"
            names.setdefault(monitor, argument)
    return names
