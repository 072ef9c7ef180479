"""Learning rate schedules, with separate rates and warm-ups for a pretrained encoder and other parameters."""

from collections.abc import Callable, Sequence
from functools import partial
from math import isfinite
from typing import Any

import torch
from pytorch_lightning import Trainer
from torch import nn

from datamodules.documents import UserError
from lightning_modules.lightning_internals import reload_training_data, steps_before
from lightning_modules.options import AdamWOptions, EncoderAdamWOptions, Schedule


def training_steps(trainer: Trainer) -> int:
    """Return the number of optimizer steps, and let the trainer reload data; a `UserError` if steps have no limit."""
    steps = min(trainer.estimated_stepping_batches, steps_before(trainer, trainer.max_epochs))
    # Lightning has loaded the training data to count batches, before it restores a checkpoint; unless it loads the data
    # again, the position in them is not restored, and a resumed run starts its epoch from the first batch
    reload_training_data(trainer)
    if not isfinite(steps):
        problem = "the schedule of the learning rate needs the number of steps, which is not limited"
        remedy = "set trainer.max_steps or trainer.max_epochs, in addition to trainer.max_time if it ends by time"
        raise UserError(f"{problem}; {remedy}")
    return int(steps)


def steps_needed(trainer: Trainer, options: AdamWOptions) -> int:
    """Return the number of optimizer steps if the schedule or a fractional warm-up depends on it, otherwise 1."""
    warm_ups = [options.warmup_steps, getattr(options, "encoder_warmup_steps", None) or 0]  # 0 without such a value
    is_needed = options.schedule == "linear" or any(0 < warm_up < 1 for warm_up in warm_ups)
    return training_steps(trainer) if is_needed else 1  # `training_steps` fails for a training without limit


def scheduled(optimizer: torch.optim.Optimizer, factors: Sequence[Callable[[int], float]]) -> dict[str, Any]:
    """Return the result of `configure_optimizers`; `factors` has one function per group, from step to rate factor."""
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, list(factors))
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def noam_factor(size: int, warm_up: int) -> Callable[[int], float]:
    """Return the schedule of Vaswani et al. 2017 (equation 3): D^-0.5 min(t^-0.5, t warm_up^-1.5) at step t >= 1."""
    if warm_up < 1:
        raise ValueError(f"a warm-up needs at least one step, got {warm_up}")
    return lambda step: size**-0.5 * min((step + 1) ** -0.5, (step + 1) * warm_up**-1.5)  # PyTorch counts from 0


def rate_factor(step: int, schedule: Schedule, steps: int, warm_up: float) -> float:
    """Return the learning rate at a step, counted from 0, as a fraction of the peak; for `schedule` see `AdamWOptions`.

    `warm_up` is a number of steps or, below 1, a fraction of all `steps`. Only fractions and `linear` use `steps`.
    """
    warmup_steps = max(1, round(warm_up * steps if warm_up < 1 else warm_up))  # at least 1, as it is a divisor
    rising = (step + 1) / warmup_steps
    if schedule == "constant":
        return min(1.0, rising)
    if schedule == "inverse_root":
        return min(rising, (warmup_steps / (step + 1)) ** 0.5)
    return min(rising, max(0.0, (steps - step) / max(1, steps - warmup_steps)))  # `linear`, 0 from step `steps` on


def split_parameters(module: nn.Module, encoder: nn.Module | None) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return the trained parameters of a module as two lists: of its encoder, if it has one, and all others."""
    encoder_ids = set() if encoder is None else {id(parameter) for parameter in encoder.parameters()}
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    others = [parameter for parameter in trained if id(parameter) not in encoder_ids]
    return [parameter for parameter in trained if id(parameter) in encoder_ids], others


def two_rates(
    module: nn.Module, encoder: nn.Module | None, options: AdamWOptions, steps: int, decay_vectors: bool = False
) -> dict[str, Any]:
    """Return the result of `configure_optimizers`: AdamW with separate rates for encoder and other parameters.

    `steps` is the number of optimizer steps, see `steps_needed`. With `decay_vectors` vectors such as biases decay as
    matrices do. Without `encoder` all have the rate `options.lr`; an `encoder` needs `EncoderAdamWOptions`.
    """
    encoder_parameters, others = split_parameters(module, encoder)
    rates = [(others, options.lr, options.warmup_steps)]  # of each set of parameters: peak rate and warm-up
    if isinstance(options, EncoderAdamWOptions):
        warm_up = options.warmup_steps if options.encoder_warmup_steps is None else options.encoder_warmup_steps
        rates.insert(0, (encoder_parameters, options.encoder_lr, warm_up))  # first, as in checkpoints
    groups, factors = [], []  # parameter groups, and the schedule of each
    for parameters, peak, warm_up in rates:
        for is_matrix in (True, False):
            chosen = [parameter for parameter in parameters if (parameter.dim() > 1) == is_matrix]
            if chosen:
                weight_decay = options.weight_decay if is_matrix or decay_vectors else 0.0
                groups.append({"params": chosen, "lr": peak, "weight_decay": weight_decay})
                factors.append(partial(rate_factor, schedule=options.schedule, steps=steps, warm_up=warm_up))
    return scheduled(torch.optim.AdamW(groups), factors)
