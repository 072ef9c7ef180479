"""Mechanisms that callbacks switch on, or ramp up, during training."""

from typing import Any, NamedTuple

from pytorch_lightning import Callback, LightningModule, Trainer


class Switch(NamedTuple):
    """State of a scheduled mechanism: its value at some step, and the value that it ends at."""

    value: float
    final: float

    @property
    def fully_on(self) -> bool:
        """Whether the mechanism has its final value."""
        return self.value == self.final

    def __str__(self) -> str:
        return f"{self.value:g} (fully on)" if self.fully_on else f"{self.value:g} of {self.final:g}"


class Scheduled(Callback):
    """Base class of callbacks that switch a mechanism on, or ramp it up, during training.

    A subclass implements `switches`. `BestCheckpoint` selects no checkpoint before all mechanisms are fully on, and
    every checkpoint records their states under `switches`.
    """

    def switches(self, trainer: Trainer, step: int) -> dict[str, Switch]:
        """Return the states of this callback's mechanisms by name, after `step` completed optimizer steps of `fit`.

        They are pure functions of the step, so that a resumed run continues exactly where it was. A mechanism that the
        model was built without is left out.
        """
        raise NotImplementedError

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn != "fit":  # the length of an epoch, which a schedule may depend on, is not known
            return
        states = self.switches(trainer, last_step(trainer))
        plain = {name: list(switch) for name, switch in states.items()}  # a checkpoint holds only plain types
        checkpoint.setdefault("switches", {}).update(plain)  # several callbacks may add their states


def last_step(trainer: Trainer) -> int:
    """Return the number, from 0, of the last optimizer step that has been made; 0 also before the first."""
    return max(0, trainer.global_step - 1)


def all_switches(trainer: Trainer, step: int) -> dict[str, Switch]:
    """Return the states of all scheduled mechanisms of a run at an optimizer step, by name."""
    scheduled = [callback for callback in trainer.callbacks if isinstance(callback, Scheduled)]
    return {name: switch for callback in scheduled for name, switch in callback.switches(trainer, step).items()}


def ramp(step: int, start: int, steps: int, last: float) -> float:
    """Return a scheduled value at a step: 0 before `start`, then growing linearly to `last` in `steps` steps."""
    if step < start:
        return 0.0
    return last if steps == 0 else last * min(1.0, (step - start + 1) / steps)  # 0 steps switch at once
