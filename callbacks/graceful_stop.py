"""Ctrl-C and SIGTERM: finish the batch, save, end."""

import signal
from pathlib import Path
from types import FrameType

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.utilities import rank_zero_info


class GracefulStop(Callback):
    """On SIGINT or SIGTERM during training, saves a checkpoint at the end of the batch and ends the process.

    The handler only sets a flag. A second signal is handled as if this callback were not there. The process ends with
    128 + the signal's number, as a shell reports it. Several ranks agree every `agree_every` batches, so that all stop
    after the same one.

    Args:
        path: of the checkpoint.
        resume: the command that goes on from it, printed at the end.
        agree_every: batches between agreements of several ranks.
    """

    def __init__(self, path: Path, resume: str = "", agree_every: int = 10) -> None:
        self.path, self.resume, self.agree_every = Path(path), resume, agree_every
        self.received: int | None = None
        self._before: dict[int, object] = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        signal.signal(number, self._before.get(number) or signal.SIG_DFL)
        print(f"\n{signal.Signals(number).name}: finishing the batch, then saving", flush=True)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)

    def _agreed(self, trainer: Trainer, batch_idx: int) -> bool:
        if trainer.world_size == 1:
            return self.received is not None
        if batch_idx % self.agree_every:
            return False
        return trainer.strategy.reduce_boolean_decision(self.received is not None, all=False)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        if self._agreed(trainer, batch_idx):
            trainer.save_checkpoint(self.path)
            rank_zero_info(f"stopped after step {trainer.global_step}, saved {self.path}; go on with: {self.resume}")
            raise SystemExit(128 + (self.received or signal.SIGTERM))

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int, *_: int
    ) -> None:
        # validation is repeated after resuming: what was trained is in the checkpoint that precedes it
        if trainer.state.fn == "fit" and not trainer.sanity_checking and self.received and trainer.world_size == 1:
            trainer.save_checkpoint(self.path)
            rank_zero_info(f"stopped during validation, saved {self.path}; go on with: {self.resume}")
            raise SystemExit(128 + self.received)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)
        self._before = {}

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._restore()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._restore()
