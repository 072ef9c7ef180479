"""Turns coverage on late in training, as See et al. 2017 do."""

from math import ceil

from pytorch_lightning import LightningModule, Trainer

from callbacks.schedules import Scheduled, Switch, ramp


class CoverageAnnealing(Scheduled):
    """Opens the coverage gate at a step and ramps the weight of its loss.

    Mechanism and loss are two switches: before the start the gate is 0, so that attention does not see its past, and so
    is the weight. w_c exists from the beginning (with a gradient of zero), so the optimizer's state stays whole. Gate
    and weight are pure functions of the optimizer step: a resumed run continues exactly where it was.

    A model that was built without coverage (`--model.coverage false`) has neither: it trains as if this were not there.

    Args:
        start_step: optimizer step at which coverage is switched on.
        start_epoch: the same as an epoch (its number, from 0); give one of the two.
        ramp_steps: steps over which the loss weight grows linearly; 0 switches at once.
        weight: final lambda (1 in the paper).

    Raises:
        ValueError: if a step is negative, the weight is not positive, or not exactly one start is given.
    """

    def __init__(
        self, start_step: int | None = None, start_epoch: int | None = None, ramp_steps: int = 0, weight: float = 1.0
    ) -> None:
        if (start_step is None) == (start_epoch is None):
            raise ValueError("CoverageAnnealing needs either start_step or start_epoch")
        if (start_step or 0) < 0 or (start_epoch or 0) < 0 or ramp_steps < 0 or weight <= 0:
            raise ValueError(
                "CoverageAnnealing needs start >= 0, ramp_steps >= 0, weight > 0; "
                f"got {start_step if start_epoch is None else start_epoch}, {ramp_steps}, {weight}"
            )
        self.start_step, self.start_epoch = start_step, start_epoch
        self.ramp_steps, self.weight = ramp_steps, weight

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Checks that there is something to switch on.

        Raises:
            ValueError: if the model has no coverage.
        """
        if stage == "fit" and "coverage" not in pl_module.loss_weights:
            raise ValueError("CoverageAnnealing needs a model with coverage; set --model.coverage true or drop it")

    def weight_at(self, step: int, start: int) -> float:
        """lambda at an optimizer step: 0 before the start, then linear up to `weight`."""
        return ramp(step, start, self.ramp_steps, self.weight)

    def _start(self, trainer: Trainer) -> int:
        if self.start_step is not None:
            return self.start_step
        # Lightning steps at an epoch's end, whether or not all batches of that step have come
        return self.start_epoch * ceil(trainer.num_training_batches / trainer.accumulate_grad_batches)

    def switches(self, trainer: Trainer, step: int) -> dict[str, Switch]:
        """Return the gate and the weight of the loss; nothing for a model that was built without coverage."""
        if not trainer.lightning_module.has_coverage:
            return {}
        start = self._start(trainer)
        weight = Switch(self.weight_at(step, start), self.weight)
        return {"coverage_gate": Switch(float(step >= start), 1.0), "coverage_weight": weight}

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        start = self._start(trainer)
        pl_module.coverage_gate = float(trainer.global_step >= start)
        pl_module.loss_weights["coverage"] = self.weight_at(trainer.global_step, start)
        pl_module.log("train/coverage_weight", pl_module.loss_weights["coverage"], batch_size=1)
