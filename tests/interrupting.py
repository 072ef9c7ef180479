"""A callback that interrupts its own process: the place is exact, however slow the machine."""

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

from pytorch_lightning import Callback
from pytorch_lightning.utilities import rank_zero_only


def run_command(arguments: list[str], out: Path, **environment: str) -> None:
    """Run `precis` in this process, its output in a file: the target of a process."""
    os.environ |= environment
    rank_zero_only.rank = int(environment.get("RANK", 0))  # as if Lightning were imported only now
    with out.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    multiprocessing.set_start_method("fork", force=True)  # as in a process that a user starts, not the fork server's
    from precis.command_line.cli import main

    sys.exit(main(arguments))


class Interrupt(Callback):
    """Send a signal at a training batch (counted over epochs), a batch of a validation, or the sanity check."""

    def __init__(
        self, number: int, batch: int = -1, validation: int = -1, sanity: bool = False, times: int = 1, rank: int = 0
    ) -> None:
        self.number, self.batch, self.validation, self.sanity = number, batch, validation, sanity
        self.times, self.rank = times, rank

    def _send(self) -> None:
        for _ in range(self.times):
            os.kill(os.getpid(), signal.Signals(self.number))

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.fit_loop.total_batch_idx == self.batch and trainer.global_rank == self.rank:
            self._send()

    def on_validation_batch_start(self, trainer, pl_module, batch, batch_idx, dataloader_idx=0):
        if trainer.sanity_checking:
            here = self.sanity and batch_idx == 0
        else:
            here = trainer.current_epoch == 0 and batch_idx == self.validation
        if here:
            self._send()


class Broken(Callback):
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        raise ValueError("broken")


class BrokenOnce(Callback):
    """Fail in the first batch of a run with a seed, unless another process has done so and left a marker."""

    def __init__(self, marker: Path, seed: int) -> None:
        self.marker, self.seed = Path(marker), seed

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if int(os.environ["PL_GLOBAL_SEED"]) == self.seed and not self.marker.exists():
            self.marker.touch()
            raise ValueError("made to crash")


class Diverge(Callback):
    """Let gradients be NaN in an optimizer step, counted from 0."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        if trainer.global_step == self.step:
            for parameter in pl_module.parameters():
                if parameter.grad is not None:
                    parameter.grad.fill_(float("nan"))


class Hold(Callback):
    """Wait once at the start of a training batch: `holding` in the folder has this process's number, `go` ends it."""

    def __init__(self, folder: Path, batch: int) -> None:
        self.folder, self.batch = Path(folder), batch

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.fit_loop.total_batch_idx != self.batch or (self.folder / "go").exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.folder / f"holding.{os.getpid()}.part"  # several processes may hold at once
        part.write_text(str(os.getpid()))
        part.replace(self.folder / "holding")
        until = time.monotonic() + 1800  # a bound for a test that has gone away
        while not (self.folder / "go").exists() and time.monotonic() < until:
            time.sleep(0.05)


class KillAfterSave(Callback):
    """Kill this process once the last.ckpt of a step is on disk, before anything else happens."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_start(self, trainer, pl_module):
        save = trainer.save_checkpoint

        def save_and_die(path, *arguments, **options):
            save(path, *arguments, **options)
            if Path(path).name == "last.ckpt" and trainer.global_step == self.step:
                os.kill(os.getpid(), signal.SIGKILL)

        trainer.save_checkpoint = save_and_die
