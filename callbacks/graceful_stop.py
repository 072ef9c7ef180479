"""Checkpoints for resuming, and graceful stop on Ctrl-C, SIGTERM and SIGUSR1."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.utilities import rank_zero_info

from lightning_modules import lightning_internals
from lightning_modules.lightning_internals import is_last_batch, may_stop_early, validation_follows

AGREE_EVERY = 10  # optimizer steps after which ranks exchange whether one has received a signal
OUTSTANDING = "validation_outstanding"  # key in a checkpoint: whether its validation is still to be done
ENDED_EARLY = "early_stopping"  # key in a checkpoint: why training was ended early; None if it was not


def early_stopping_reason(trainer: Trainer) -> str | None:
    """Return why `EarlyStopping`, or pruning in a hyperparameter search, ends training; None if it goes on."""
    if not (trainer.should_stop and may_stop_early(trainer)):
        return None
    messages = [getattr(callback, "stopping_reason_message", None) for callback in trainer.callbacks]
    return next((message.removesuffix(" Signaling Trainer to stop.") for message in messages if message), None)


def _write_line(text: str) -> None:
    """Write to standard output in a signal handler, where `print` is not safe: the signal may come during a `print`."""
    with suppress(OSError):  # the output may be closed
        os.write(1, f"{text}\n".encode())  # 1 is standard output


class GracefulStop(Checkpoint):
    """Saves the last checkpoint: after each validation, every `save_every` steps, at the end, and on SIGINT, SIGTERM or
    SIGUSR1, which end the process; after the last batch of an epoch, once the other callbacks have ended the epoch.

    A signal takes effect at the next point from which a run resumes exactly: the end of an optimizer step (accumulated
    gradients are not part of a checkpoint) or, if a validation or the end of the epoch follows, its end. If gradients
    are being accumulated then, the optimizer step is completed first. The handler only sets a flag; a second signal
    ends the process at once, without saving. The exit status is 128 + the number of the signal. Ranks tell each other
    of signals only every ten steps, because each exchange makes them wait, and all stop after the same step.

    A scheduler sends signals to each process of a job, possibly repeatedly: with `patient`, a second SIGTERM is
    ignored; a second SIGUSR1 always is.

    If a validation follows a step whose checkpoint is due, the checkpoint is written at the start of the validation and
    records that this validation is outstanding: a run that is killed during the validation repeats it after resuming,
    so that its best model and its row of metrics.csv are not lost.

    This is a `Checkpoint`, so that Lightning calls it last, after the best model is saved. `ModelCheckpoint` cannot
    replace it, because its `save_last` skips the last checkpoint if the model has not improved.

    Args:
        path: path of the checkpoint.
        resume: command that resumes the run, printed at the end.
        save_every: number of optimizer steps between checkpoints; 0 for checkpoints after validations only.
        patient: whether to ignore a second SIGTERM.
        on_stop: function called on rank 0 after saving on SIGTERM or SIGUSR1, for example to requeue a job.
    """

    def __init__(
        self,
        path: Path,
        resume: str = "",
        save_every: int = 0,
        patient: bool = False,
        on_stop: Callable[[], object] | None = None,
    ) -> None:
        if save_every < 0:
            raise ValueError(f"GracefulStop needs save_every >= 0, got {save_every}")
        self.path = Path(path)
        self.resume = resume
        self.save_every = save_every
        self.patient = patient
        self.on_stop = on_stop
        self.received: int | None = None  # number of the first signal
        self.stopping = False  # whether a rank has received a signal, so that all ranks stop
        self._saved_step = -1  # step of the last checkpoint; -1 before the first
        self._stepped = True  # whether the last training batch ended an optimizer step
        self._save_after_step = False  # set by a validation while gradients accumulate: save after that step
        self._saved_reason: str | None = None  # why training ends early, as saved in the last checkpoint
        self._save_at_validation = False  # a checkpoint is due when the validation of this step starts
        self._save_at_epoch_end = False  # a checkpoint is due when the epoch ends
        self._outstanding = False  # whether the validation of this step is still to be done; kept in checkpoints
        self._max_steps: int | None = None  # original limit while `_raise_max_steps` raises it
        self._process = os.getpid()  # process that installed the handlers; forked workers ignore signals
        self._previous_handlers: dict[int, object] = {}  # previous handler of each signal, to be restored

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Handle signal `number`: record the first one, and end the process at the second Ctrl-C or SIGTERM."""
        name = signal.Signals(number).name
        is_first = self.received is None
        in_worker = os.getpid() != self._process  # a loader process inherits this handler; its parent prints and raises
        if is_first:
            self.received = number
        if is_first and not in_worker:
            hint = "; Ctrl-C again ends at once, without saving" if number == signal.SIGINT else ""
            _write_line(f"\n{name}: finishing this step or validation, then saving{hint}")
        if number == signal.SIGTERM and not self.patient:
            signal.signal(number, signal.SIG_DFL)  # a second SIGTERM ends the process
        if number == signal.SIGINT and not is_first and not in_worker:
            _write_line(f"\n{name}: ending at once, without saving")
            raise KeyboardInterrupt

    def _listen(self) -> None:
        """Install the signal handler once; not in `on_fit_start`, after which Lightning sets its own for SIGTERM."""
        self._process = os.getpid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            if number not in self._previous_handlers:
                self._previous_handlers[number] = signal.signal(number, self._handle)

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._listen()  # for signals

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Install the signal handler; in a resumed run, repeat the validation during which it was interrupted."""
        self._listen()
        lightning_internals.begin_next_epoch(trainer)
        # Lightning sets this at the start of an epoch, which a run that is resumed within an epoch does not reach
        trainer.accumulate_grad_batches = lightning_internals.accumulation(trainer, trainer.current_epoch)
        if not self._outstanding:
            return
        if validation_follows(trainer):
            lightning_internals.repeat_validation(trainer)
        else:  # the resumed run has no validations
            self._outstanding = False
            self._restore_max_steps(trainer)  # `_raise_max_steps` had added one step for it

    def _restore_handlers(self) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: a handler that was not installed from Python
        self._previous_handlers = {}

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Restore the previous handlers and, on Ctrl-C, say which checkpoint the run resumes from."""
        self._restore_handlers()
        if isinstance(exception, KeyboardInterrupt):
            saved = f"the last checkpoint is {self.path}" if self.path.is_file() else "there is no checkpoint yet"
            outcome = f"ended after step {trainer.global_step} without saving; {saved}"
            rank_zero_info(f"{outcome}; continue with: {self.resume}")

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint[OUTSTANDING] = self._outstanding
        checkpoint[ENDED_EARLY] = self._saved_reason = early_stopping_reason(trainer)  # None if training goes on

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._outstanding = checkpoint.get(OUTSTANDING, False)  # missing in checkpoints of earlier versions
        if trainer.strategy.restore_checkpoint_after_setup:  # then it is loaded after `on_fit_start`
            self._raise_max_steps(trainer)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._raise_max_steps(trainer)  # if a validation is outstanding

    def _raise_max_steps(self, trainer: Trainer) -> None:
        """Raise `max_steps` by 1 for an outstanding validation: at the limit, Lightning skips the loop that runs it."""
        if not self._outstanding:
            return
        trainer.should_stop = False  # set by a `Timer` that has run out; the validation comes first
        if trainer.max_steps != -1:  # -1 is no limit
            self._max_steps = trainer.max_steps
            trainer.fit_loop.epoch_loop.max_steps += 1

    def _restore_max_steps(self, trainer: Trainer) -> None:
        if self._max_steps is not None:
            trainer.fit_loop.epoch_loop.max_steps = self._max_steps
            self._max_steps = None

    def _save(self, trainer: Trainer) -> None:
        if not trainer.fast_dev_run:  # which writes no files
            trainer.save_checkpoint(self.path, weights_only=False)
            self._saved_step = trainer.global_step

    def _save_and_end(self, trainer: Trainer) -> None:
        """Save, and end the process if a rank has received a signal."""
        self._save(trainer)
        if self._signal_received(trainer):
            self._end(trainer)

    def _signal_received(self, trainer: Trainer) -> bool:
        """Return whether any rank has received a signal; all ranks must call this."""
        return trainer.strategy.reduce_boolean_decision(self.received is not None, all=False)

    def _end(self, trainer: Trainer) -> None:
        """End the process, after `on_stop` if a scheduler sent the signal."""
        rank_zero_info(f"stopped after step {trainer.global_step}, saved {self.path}; continue with: {self.resume}")
        if self.on_stop is not None and self.received != signal.SIGINT and trainer.is_global_zero:
            self.on_stop()
        raise SystemExit(128 + (self.received or signal.SIGTERM))  # None: another rank received the signal

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs, batch, batch_idx) -> None:
        """Save a checkpoint if it is due after this batch, or leave it to the validation that follows."""
        is_last = batch_idx + 1 == trainer.num_training_batches  # Lightning makes an optimizer step there in any case
        stepped = self._stepped = (batch_idx + 1) % trainer.accumulate_grad_batches == 0 or is_last
        if stepped and (trainer.world_size == 1 or trainer.global_step % AGREE_EVERY == 0 or is_last):
            self.stopping = self._signal_received(trainer)  # then a later hook ends the process
        is_multiple = self.save_every and trainer.global_step % self.save_every == 0
        is_due = stepped and (is_multiple or self._save_after_step)
        # not in `on_train_epoch_end`, where Lightning counts the epoch as complete, even if training ended within it
        stops_early = trainer.should_stop and may_stop_early(trainer)  # after `min_epochs` and `min_steps`
        if is_due or self.stopping or stops_early or trainer.global_step == trainer.max_steps:
            self._save_after_step = False
            self._save_at_validation = validation_follows(trainer)
            self._save_at_epoch_end = is_last and not self._save_at_validation
            if not (self._save_at_validation or self._save_at_epoch_end):
                self._save(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the checkpoint that is due, which marks this validation as outstanding."""
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        self._restore_max_steps(trainer)  # `_raise_max_steps` raised it to repeat a validation on resuming
        if self._save_at_validation:
            self._save_at_validation = False
            self._outstanding = True  # for the checkpoint; False again below
            self._save(trainer)
        self._outstanding = False
        self._save_at_epoch_end = is_last_batch(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        if not self._stepped:  # between accumulated batches, whose gradients are not part of a checkpoint
            self._save_after_step = True  # then `on_train_batch_end` saves after their optimizer step
        elif not self._save_at_epoch_end:
            self._save_and_end(trainer)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        if self.stopping:  # a signal came, and no validation followed its step
            self._end(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save after other callbacks have ended the epoch, and before `WeightAveraging` replaces the weights."""
        is_end = trainer.current_epoch + 1 == trainer.max_epochs or (trainer.should_stop and may_stop_early(trainer))
        # the checkpoint of the last step may have been saved before `EarlyStopping` set its reason to end training
        is_saved = self._saved_step == trainer.global_step and self._saved_reason == early_stopping_reason(trainer)
        if self._save_at_epoch_end or (is_end and not is_saved):
            self._save_at_epoch_end = False
            self._save_and_end(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._restore_handlers()
