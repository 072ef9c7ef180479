"""Learning rates over time."""

from typing import Any

import torch


def warmed_up(optimizer: torch.optim.Optimizer, steps: int, warm_up: float = 0.1) -> dict[str, Any]:
    """What `configure_optimizers` returns: a linear rise over the first share of the steps, then a linear fall to 0.

    Args:
        optimizer: with the peak rates.
        steps: of the whole training.
        warm_up: share of the steps that rise.
    """
    rise = max(1, round(warm_up * steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / rise, max(0.0, (steps - step) / max(1, steps - rise)))
    )
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def noam(optimizer: torch.optim.Optimizer, size: int, warm_up: int) -> dict[str, Any]:
    """What `configure_optimizers` returns for the schedule of Vaswani et al. 2017 (equation 3): the optimizer's rate
    times D^-0.5 min(t^-0.5, t warm_up^-1.5) at step t = 1, 2, ...

    Args:
        optimizer: with the factors.
        size: D.
        warm_up: steps that rise.

    Raises:
        ValueError: if the warm-up has no step.
    """
    if warm_up < 1:
        raise ValueError(f"a warm-up needs at least one step, got {warm_up}")
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: size**-0.5 * min((step + 1) ** -0.5, (step + 1) * warm_up**-1.5)
    )
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
