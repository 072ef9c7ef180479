"""Switches coverage on late in training, as See et al. 2017 do."""

from jsonargparse.typing import NonNegativeInt, PositiveFloat
from pytorch_lightning import LightningModule, Trainer

from callbacks.schedules import Scheduled, Switch, ramp
from lightning_modules.lightning_internals import steps_before


class CoverageAnnealing(Scheduled):
    """Switches coverage on at a step and increases the weight of its loss.

    Before the start, the gate (0 or 1, by which attention multiplies coverage) and the weight of the coverage loss are
    0. The parameter w_c, by which attention reads coverage, exists from the beginning (with zero gradient), so that the
    optimizer state is complete. Gate and weight depend only on the optimizer step, so a resumed run continues exactly.

    It has no effect on a model whose option `coverage` is off (`--model.coverage false`).

    Args:
        start_step: optimizer step at which coverage is switched on.
        start_epoch: epoch (from 0) at which coverage is switched on, as an alternative to `start_step`.
        ramp_steps: steps over which the loss weight grows linearly; 0 switches at once.
        weight: final weight of the coverage loss, lambda in See et al. 2017 (1 there).

    Raises:
        ValueError: if not exactly one start is given; in training, if the class of the model has no such option.
    """

    def __init__(
        self,
        start_step: NonNegativeInt | None = None,
        start_epoch: NonNegativeInt | None = None,
        ramp_steps: NonNegativeInt = 0,
        weight: PositiveFloat = 1.0,
    ) -> None:
        if (start_step is None) == (start_epoch is None):
            raise ValueError("CoverageAnnealing needs either start_step or start_epoch")
        self.start_step = start_step
        self.start_epoch = start_epoch
        self.ramp_steps = ramp_steps
        self.weight = float(weight)  # plain, since `weights_only` loads no jsonargparse type from checkpoints

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit" and "coverage" not in pl_module.loss_weights:  # its class has no option `coverage`
            raise ValueError("CoverageAnnealing needs a model with coverage; set --model.coverage true or drop it")

    def _gate_and_weight(self, trainer: Trainer, step: int) -> tuple[float, float]:
        """Return the gate and the weight of the coverage loss at an optimizer step."""
        start = steps_before(trainer, self.start_epoch) if self.start_step is None else self.start_step
        return float(step >= start), ramp(step, start, self.ramp_steps, self.weight)

    def switches(self, trainer: Trainer, step: int) -> dict[str, Switch]:
        """Return (present, final) gate and loss weight; nothing for a model that was built without coverage."""
        if not trainer.lightning_module.has_coverage:
            return {}
        gate, weight = self._gate_and_weight(trainer, step)
        return {"coverage_gate": Switch(gate, 1.0), "coverage_weight": Switch(weight, self.weight)}

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        pl_module.coverage_gate, weight = self._gate_and_weight(trainer, trainer.global_step)
        pl_module.loss_weights["coverage"] = weight
        pl_module.log("train/coverage_weight", weight, batch_size=1)
