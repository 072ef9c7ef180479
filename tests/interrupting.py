"""A callback that interrupts its own process: the place is exact, however slow the machine."""

import os
import signal

from pytorch_lightning import Callback


class Interrupt(Callback):
    """Sends signals to this process.

    Args:
        number: of the signal.
        batch: number of the training batch, over all epochs, at whose start it comes.
        validation: number of the validation batch at which it comes instead, in the first validation.
        sanity: whether it comes at the start of the sanity check instead.
        times: how often.
    """

    def __init__(
        self, number: int, batch: int = -1, validation: int = -1, sanity: bool = False, times: int = 1
    ) -> None:
        self.number, self.batch, self.validation, self.sanity, self.times = number, batch, validation, sanity, times

    def _send(self) -> None:
        for _ in range(self.times):
            os.kill(os.getpid(), signal.Signals(self.number))

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.fit_loop.total_batch_idx == self.batch and trainer.is_global_zero:
            self._send()

    def on_validation_batch_start(self, trainer, pl_module, batch, batch_idx, dataloader_idx=0):
        if trainer.sanity_checking:
            here = self.sanity and batch_idx == 0
        else:
            here = trainer.current_epoch == 0 and batch_idx == self.validation
        if here:
            self._send()


class Broken(Callback):
    """Fails in the first batch."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        raise ValueError("broken")
