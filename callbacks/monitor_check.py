"""Checks in training that monitored values are logged, and that they move."""

from collections.abc import Sequence
from difflib import get_close_matches

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.cli import ReduceLROnPlateau
from pytorch_lightning.utilities import rank_zero_warn

from datamodules.documents import UserError

LATER = ("train/", "lr-")  # logged from the first training batch on
_MIN_VALIDATIONS = 5  # number of validations with the same score before a warning
_MIN_FALL = 0.1  # fraction by which the training loss must have fallen since the first validation


class MonitorCheck(Callback):
    """Checks early that the values which other callbacks monitor (`checkpoint.monitor`, `EarlyStopping`) are logged.

    Values of the validation are checked after Lightning's sanity check, or else after the first validation; those of
    training after the first optimizer step. It must come before the callbacks that it checks. One warning tells of a
    value that has not changed in five or more validations, while the training loss falls by a tenth or more:
    ROUGE for English is always 0 on Chinese texts, for example, so that no checkpoint is better than the first one.

    Raises:
        UserError: during training, if a monitored value is not logged.
    """

    def __init__(self) -> None:
        self._checked: set[str] = set()  # monitored names that are logged
        self._scores: dict[str, set[float]] = {}  # distinct values of each monitored name
        self._num_validations = 0
        self._first_loss: float | None = None  # training loss at the first validation

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit":
            names = [name for name in _monitored_by(trainer) if not name.startswith(LATER)]  # train/ and lr- come later
            self._check(trainer, names)
            if not trainer.sanity_checking:
                self._warn_if_constant(trainer, names, getattr(pl_module, "language", None))

    def _warn_if_constant(self, trainer: Trainer, names: list[str], language: str | None) -> None:
        """Count a validation, and warn once of each monitored name whose value stays the same while the loss falls."""
        self._num_validations += 1
        loss = float(trainer.callback_metrics.get("train/loss", 0.0))  # 0 if none is logged: then never `has_fallen`
        first_loss = self._first_loss = loss if self._first_loss is None else self._first_loss
        remedy = "monitor another value with --checkpoint.monitor"
        if language is not None:  # None: a model without a language
            remedy = f"set --data.language if the texts are not in language {language!r} (xx for any), or {remedy}"
        has_fallen = first_loss != 0 and first_loss - loss >= _MIN_FALL * abs(first_loss)
        for name in names:
            value = float(trainer.callback_metrics[name])
            scores = self._scores.setdefault(name, set())
            scores.add(value)
            if has_fallen and self._num_validations >= _MIN_VALIDATIONS and len(scores) == 1:
                scores.add(float("nan"))  # now 2 elements, so that there is no second warning
                rank_zero_warn(
                    f"{_monitored_by(trainer)[name]} {name} is {value:g} in all {self._num_validations} validations, "
                    f"while train/loss falls from {first_loss:.3g} to {loss:.3g}, so that no checkpoint is better than "
                    f"the first; {remedy}"
                )

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs, batch, batch_idx) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches == 0:  # some are logged only in optimizer steps
            self._check(trainer, [name for name in _monitored_by(trainer) if name.startswith("train/")])

    def _check(self, trainer: Trainer, names: list[str]) -> None:
        for name in names:
            if name not in self._checked:
                check_monitor(_monitored_by(trainer)[name], name, sorted(trainer.callback_metrics))
                self._checked.add(name)


class PlateauSchedule(Callback):
    """Advances `ReduceLROnPlateau` after each validation; each epoch for values of training or without validation.

    Lightning lets it advance after the checkpoints of an epoch, and not at all in the epoch in which a run is resumed.
    A run that is killed between the last batch of an epoch and its end loses one advance on a value of training.
    """

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._advance(trainer, of_training=False)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._advance(trainer, of_training=True)

    def _advance(self, trainer: Trainer, of_training: bool) -> None:
        for each in trainer.lr_scheduler_configs:
            if not isinstance(each.scheduler, ReduceLROnPlateau):
                continue
            monitor = each.scheduler.monitor
            if of_training and trainer.fit_loop.restarting and monitor not in trainer.callback_metrics:
                continue  # resumed after the last batch of the epoch, whose values are lost
            if of_training == (monitor.startswith(LATER) or not any(trainer.num_val_batches)):
                check_monitor("lr_scheduler.monitor", monitor, sorted(trainer.callback_metrics))
                each.scheduler.step(trainer.callback_metrics[monitor])


def check_monitor(argument: str, name: str, logged: Sequence[str]) -> None:
    """Raise a `UserError` if the value `name`, which an `argument` of the run monitors, is not among logged values."""
    if name not in logged:
        close = get_close_matches(name, logged, n=1)  # a spelling error?
        hint = f"did you mean {close[0]}?" if close else "name one of those"
        names = ", ".join(logged) or "nothing"
        raise UserError(f"{argument} is {name!r}, which this run does not log; it logs {names}; {hint}")


def _monitored_by(trainer: Trainer) -> dict[str, str]:
    """Return for each monitored name the argument or callback, as text for messages, that monitors it first."""
    arguments: dict[str, str] = {}
    for callback in trainer.callbacks:
        if isinstance(monitor := getattr(callback, "monitor", None), str):  # most callbacks monitor nothing
            is_checkpoint = isinstance(callback, ModelCheckpoint)
            argument = "checkpoint.monitor" if is_checkpoint else f"monitor of {type(callback).__name__}"
            arguments.setdefault(monitor, argument)
    return arguments
