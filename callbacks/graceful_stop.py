"""The checkpoint that a run goes on from; Ctrl-C and SIGTERM: finish the step, save it, end."""

import signal
from pathlib import Path
from types import FrameType

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.utilities import rank_zero_info


class GracefulStop(Checkpoint):
    """Saves the last checkpoint: after each validation, at the end, and on SIGINT or SIGTERM, which end the process.

    A signal is answered at the next point from which a run resumes exactly: the end of an optimizer step (gradients
    that are accumulated are in no checkpoint) or, where a validation follows or goes on, its end. The handler only sets
    a flag; a second signal ends the process at once. It ends with 128 + the signal's number, as a shell reports it.
    Several ranks agree every `agree_every` steps, so that all stop after the same one.

    A `Checkpoint`, so that Lightning calls it last: the best model is saved before. (`ModelCheckpoint` leaves out its
    own last checkpoint where the model has not become better.)

    Args:
        path: of the checkpoint.
        resume: the command that goes on from it, printed at the end.
        agree_every: optimizer steps between agreements of several ranks.
    """

    def __init__(self, path: Path, resume: str = "", agree_every: int = 10) -> None:
        self.path, self.resume, self.agree_every = Path(path), resume, agree_every
        self.received: int | None = None
        self.stopping = False
        self._saved = -1  # step of the checkpoint
        self._before: dict[int, object] = {}

    # The signal --------------------------------------------------------------------------------------------------

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        print(f"\n{signal.Signals(number).name}: finishing this step or validation, then saving", flush=True)

    def _listen(self) -> None:
        # later than in `on_fit_start`: Lightning's own handler of SIGTERM would come on top, and end all ranks at once
        for number in (signal.SIGINT, signal.SIGTERM):
            if number not in self._before:
                self._before[number] = signal.signal(number, self._handle)

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._listen()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._listen()

    def _forget(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)
        self._before = {}

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._forget()

    # Saving and ending -------------------------------------------------------------------------------------------

    def _save(self, trainer: Trainer) -> None:
        if not trainer.fast_dev_run:
            trainer.save_checkpoint(self.path, weights_only=False)
            self._saved = trainer.global_step

    def _asked(self, trainer: Trainer) -> bool:
        asked = self.received is not None
        return trainer.strategy.reduce_boolean_decision(asked, all=False) if trainer.world_size > 1 else asked

    def _end(self, trainer: Trainer) -> None:
        rank_zero_info(f"stopped after step {trainer.global_step}, saved {self.path}; go on with: {self.resume}")
        raise SystemExit(128 + (self.received or signal.SIGTERM))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        last = batch_idx + 1 == trainer.num_training_batches  # Lightning steps there in any case
        stepped = (batch_idx + 1) % trainer.accumulate_grad_batches == 0 or last
        if stepped and (trainer.world_size == 1 or trainer.global_step % self.agree_every == 0 or last):
            self.stopping = self._asked(trainer)  # after the validation, or before the next batch
        # where training ends within an epoch, Lightning counts that as done before `on_train_end`
        if self.stopping or trainer.should_stop or trainer.global_step == trainer.max_steps:
            self._save(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._save(trainer)
            if self._asked(trainer):
                self._end(trainer)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        if self.stopping:
            self._end(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._saved != trainer.global_step:
            self._save(trainer)
        self._forget()
