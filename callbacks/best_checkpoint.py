"""Selects the checkpoint that is tested."""

from math import inf, isfinite

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.utilities import rank_zero_warn
from torch import Tensor

from callbacks.schedules import all_switches, last_step
from datamodules.text.lines import counted
from lightning_modules.lightning_internals import steps_before


class BestCheckpoint(ModelCheckpoint):
    """`ModelCheckpoint` that selects the best value of `monitor` only once every scheduled mechanism is fully on.

    `Scheduled` callbacks switch on or ramp up mechanisms, such as the coverage loss, until these have their final value
    (fully on). Otherwise weights from before that could be tested. If training ends before all are fully on, there is
    no best checkpoint; a warning says so, and the last one is tested. Without a `monitor` all checkpoints are saved.
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Warn if the run is too short for its schedules."""
        super().on_train_start(trainer, pl_module)
        steps = min(steps_before(trainer, trainer.max_epochs), trainer.max_steps if trainer.max_steps > -1 else inf)
        if self.monitor is None or not isfinite(steps):
            return
        if pending := _pending(trainer, int(steps) - 1):  # names of what is not fully on at the last step
            rank_zero_warn(
                f"this run ends after {counted(int(steps), 'step')}, before everything that it schedules is fully on "
                f"({pending}): no best checkpoint will be selected; train longer, or schedule it earlier"
            )

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Warn if there is no best checkpoint, because training ended before its schedules were fully on."""
        super().on_train_end(trainer, pl_module)
        if self.monitor is None or self.best_model_path or trainer.fast_dev_run:
            return
        pending = _pending(trainer, last_step(trainer))
        reason = f"not everything that it schedules was fully on ({pending})" if pending else "no validation came after"
        if pending or all_switches(trainer, last_step(trainer)):  # empty: nothing is scheduled
            rank_zero_warn(
                f"training ended after step {trainer.global_step:,}, and {reason}: there is no best checkpoint, and "
                "`precis test` scores the last one; train longer, or schedule it earlier"
            )

    def _save_topk_checkpoint(self, trainer: Trainer, monitor_candidates: dict[str, Tensor]) -> None:
        if self.monitor is None or not _pending(trainer, last_step(trainer)):  # everything is fully on
            super()._save_topk_checkpoint(trainer, monitor_candidates)


def _pending(trainer: Trainer, step: int) -> str:
    """Return a list in words of the scheduled mechanisms that are not fully on at a step; empty if all are."""
    states = all_switches(trainer, max(0, step)).items()
    return ", ".join(f"{name} {switch}" for name, switch in states if not switch.fully_on)
