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
