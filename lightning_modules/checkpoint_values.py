"""Types of the values in checkpoints and exported models, which may come from somebody else."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor


def _is_number(value: Any) -> bool:  # magnitude below 2**63; a bool is an int in Python
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1 << 63


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _is_weight(value: Any) -> bool:
    """Return whether a value is a plain dense tensor on the CPU."""
    is_dense = isinstance(value, Tensor) and value.layout == torch.strided and value.device.type == "cpu"
    return is_dense and not value.is_quantized and not value.is_nested


def _is_plain(value: Any) -> bool:  # a scalar of JSON
    return value is None or isinstance(value, bool | int | float | str)


def _is_dict(value: Any, is_valid: Callable[[Any], bool]) -> bool:
    """Return whether a value is a dictionary with strings as keys, whose values pass `is_valid`."""
    return isinstance(value, dict) and all(isinstance(name, str) and is_valid(part) for name, part in value.items())


def _is_nested(value: Any, kind: type, is_valid: Callable[[Any], bool]) -> bool:
    """Return whether a value is of a `kind`, such as `dict`, and all its leaves, at any depth, pass `is_valid`."""
    seen, remaining = set(), [value]  # `seen`, because containers may be shared, or contain themselves
    while remaining:
        part = remaining.pop()
        if isinstance(part, dict | list | tuple):
            if id(part) not in seen:
                seen.add(id(part))
                remaining += part.values() if isinstance(part, dict) else part
        elif not is_valid(part):
            return False
    return isinstance(value, kind)


def _is_state(value: Any) -> bool:
    """Return whether a value may be the state of an optimizer, schedule or callback."""
    return _is_nested(value, dict | list, lambda part: _is_plain(part) or _is_weight(part))


def _is_switch(value: Any) -> bool:  # a scheduled value, and the one that it ends at
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_number, value))


def _is_metrics(value: Any) -> bool:
    """Return whether a value may be what `MetricsRecord` stores: number of rows of metrics.csv, and a row to write."""
    if not isinstance(value, dict) or not _is_count(value.get("rows")):
        return False
    row = value.get("pending")
    if row is None:
        return True
    return isinstance(row, dict) and _is_count(row.get("step")) and _is_dict(row.get("values"), _is_plain)


VALUES: dict[str, Callable[[Any], bool]] = {
    "best_scores": _is_state,
    "callbacks": lambda value: _is_dict(value, _is_state),
    "coverage_gate": _is_number,
    "early_stopping": lambda value: value is None or isinstance(value, str),
    "encoder_window": lambda value: _is_count(value) and 0 < value < 1 << 31,
    "epoch": _is_count,
    "global_step": _is_count,
    "loops": partial(_is_nested, kind=dict, is_valid=lambda part: isinstance(part, bool) or _is_count(part)),
    "loss_weights": partial(_is_dict, is_valid=_is_number),
    "lr_schedulers": _is_state,
    "metrics": _is_metrics,
    "optimizer_states": _is_state,
    "own_edu_neutral": lambda value: isinstance(value, bool),
    "parser": partial(_is_nested, kind=dict, is_valid=_is_plain),
    "pytorch-lightning_version": lambda value: isinstance(value, str),
    "state_dict": partial(_is_dict, is_valid=_is_weight),
    "switches": lambda value: value is None or _is_dict(value, _is_switch),
    "text": partial(_is_nested, kind=dict, is_valid=_is_plain),
    "validation_outstanding": lambda value: isinstance(value, bool),
}
REQUIRED = ("state_dict", "global_step")


def find_invalid_value(content: Any) -> str | None:
    """Return the name of a value that is missing, or has a type that `precis` never writes; None if there is none."""
    missing = [name for name in REQUIRED if name not in content]
    invalid = (name for name, is_valid in VALUES.items() if name in content and not is_valid(content[name]))
    return next(iter(missing), None) or next(invalid, None)
