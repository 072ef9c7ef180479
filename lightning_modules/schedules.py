"""Learning rates over time, with rates and warm-ups of their own for a pretrained encoder and for the rest."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import nn

Schedule = Literal["linear", "inverse_root", "constant"]


def scheduled(optimizer: torch.optim.Optimizer, factors: Sequence[Callable[[int], float]]) -> dict[str, Any]:
    """What `configure_optimizers` returns for an optimizer whose rates change at every step.

    Args:
        optimizer: with a base rate for each of its parameter groups.
        factors: for each group, the factor of its base rate as a function of the step (0, 1, ...).
    """
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, list(factors))
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def warmed_up(optimizer: torch.optim.Optimizer, steps: int, warm_up: float = 0.1) -> dict[str, Any]:
    """What `configure_optimizers` returns: a linear rise over the first share of the steps, then a linear fall to 0.

    Args:
        optimizer: with the peak rates.
        steps: of the whole training.
        warm_up: share of the steps that rise.
    """
    factor = partial(rate_factor, schedule="linear", steps=steps, warm_up=warm_up)
    return scheduled(optimizer, [factor] * len(optimizer.param_groups))


def adamw_with_encoder(
    module: nn.Module, encoder: nn.Module | None, rate: float, encoder_rate: float, weight_decay: float, steps: int
) -> dict[str, Any]:
    """What `configure_optimizers` returns: AdamW with two rates, `warmed_up`; without an encoder all have `rate`."""
    pretrained, others = split_parameters(module, encoder)
    groups = [{"params": others, "lr": rate}, {"params": pretrained, "lr": encoder_rate}]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], weight_decay=weight_decay)
    return warmed_up(optimizer, steps)


def noam_factor(size: int, warm_up: int) -> Callable[[int], float]:
    """The schedule of Vaswani et al. 2017 (equation 3): D^-0.5 min(t^-0.5, t warm_up^-1.5) at step t = 1, 2, ...

    Args:
        size: D.
        warm_up: steps that rise.

    Raises:
        ValueError: if the warm-up has no step.
    """
    if warm_up < 1:
        raise ValueError(f"a warm-up needs at least one step, got {warm_up}")
    return lambda step: size**-0.5 * min((step + 1) ** -0.5, (step + 1) * warm_up**-1.5)


def rate_factor(step: int, schedule: Schedule, steps: int, warm_up: float) -> float:
    """The share of the peak rate at a step.

    Args:
        step: from 0.
        schedule: `linear`, up over the warm-up and down to 0 over the rest of the training; `inverse_root`, up over the
            warm-up and with step^-0.5 from there on (Vaswani et al. 2017, scaled to the peak); `constant`.
        steps: of the whole training; only `linear` and a warm-up that is a share depend on it.
        warm_up: steps, or the share of all steps if it is below 1.
    """
    rise = max(1, round(warm_up * steps if warm_up < 1 else warm_up))
    up = (step + 1) / rise
    if schedule == "constant":
        return min(1.0, up)
    if schedule == "inverse_root":
        return min(up, (rise / (step + 1)) ** 0.5)
    return min(up, max(0.0, (steps - step) / max(1, steps - rise)))


def split_parameters(module: nn.Module, encoder: nn.Module | None) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The trained parameters of a module's pretrained encoder, and those of the rest."""
    of_encoder = set() if encoder is None else {id(parameter) for parameter in encoder.parameters()}
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return (
        [parameter for parameter in trained if id(parameter) in of_encoder],
        [parameter for parameter in trained if id(parameter) not in of_encoder],
    )


def two_rates(
    module: nn.Module,
    encoder: nn.Module,
    encoder_rate: float,
    rate: float,
    schedule: Schedule,
    warm_up: float,
    steps: int,
    weight_decay: float,
    encoder_warm_up: float | None = None,
) -> dict[str, Any]:
    """What `configure_optimizers` returns: AdamW, one rate for a pretrained encoder and one for what is new.

    Args:
        module: all that is trained.
        encoder: the part of it that is pretrained.
        encoder_rate: its peak rate.
        rate: of the rest.
        schedule: see `rate_factor`.
        warm_up: steps, or the share of all steps if it is below 1.
        steps: of the whole training; `inverse_root` and a warm-up in steps do not depend on it.
        weight_decay: of matrices; vectors such as biases have none.
        encoder_warm_up: the same of the encoder; as the rest if not given.
    """
    groups, factors = [], []
    rates, warm_ups = (encoder_rate, rate), (warm_up if encoder_warm_up is None else encoder_warm_up, warm_up)
    for parameters, peak, rise in zip(split_parameters(module, encoder), rates, warm_ups):
        for decayed in (True, False):
            chosen = [parameter for parameter in parameters if (parameter.dim() > 1) == decayed]
            if chosen:
                groups.append({"params": chosen, "lr": peak, "weight_decay": weight_decay if decayed else 0.0})
                factors.append(partial(rate_factor, schedule=schedule, steps=steps, warm_up=rise))
    return scheduled(torch.optim.AdamW(groups), factors)
