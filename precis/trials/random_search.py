"""Random search: a number (budget) of draws of values for config keys.

random:
  budget: 20                                     # number of draws; a larger one does not change the first ones
  seed: 0                                        # seed of the draws; 0 by default
  keys:
    model.dropout: {uniform: [0.0, 0.5]}
    optimizer.lr: {log_uniform: [0.0001, 0.01]}
    model.hidden_size: {integer: [64, 256]}      # both ends included
    model.coverage: [true, false]                # one of a list
"""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from datamodules.documents import UserError

DIGITS = 4  # significant digits, so that names of folders have the exact values
KINDS: dict[str, Callable[[random.Random, float, float], float]] = {
    "uniform": lambda drawn, low, high: _rounded(drawn.uniform(low, high)),
    "log_uniform": lambda drawn, low, high: _rounded(math.exp(drawn.uniform(math.log(low), math.log(high)))),
    "integer": lambda drawn, low, high: drawn.randint(int(low), int(high)),
}


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def check_random(path: Path, section: dict[str, Any]) -> None:
    """Check the section `random` of a sweep file.

    Raises:
        UserError: for unknown keys or distributions, a missing budget, an empty list, or invalid limits.
    """
    where = f"{path}: random"
    if unknown := sorted(section.keys() - {"budget", "seed", "keys"}):
        raise UserError(f"{where}: unknown key {unknown[0]!r}; it has budget, seed, keys")
    for name, minimum in (("budget", 1), ("seed", 0)):
        value = section.get(name, 0 if name == "seed" else None)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise UserError(f"{where}: {name} must be a whole number, at least {minimum}; got {value!r}")
    if not isinstance(keys := section.get("keys"), dict) or not keys:
        raise UserError(f"{where}: keys must map config keys to distributions; got {keys!r}")
    for key, space in keys.items():
        check_distribution(f"{where}: {key}", space)


def check_distribution(where: str, space: Any) -> None:
    """Check a list of values, or a distribution with its limits.

    Args:
        where: start of the message: file, section and key.
        space: value of the key in the sweep file.

    Raises:
        UserError: for an empty list, an unknown distribution, or invalid limits.
    """
    if isinstance(space, list):
        if not space:
            raise UserError(f"{where} must be a list with a value at least, or {', '.join(KINDS)} with two limits")
        return
    kind, limits = next(iter(space.items())) if isinstance(space, dict) and len(space) == 1 else (None, None)
    if kind not in KINDS:
        raise UserError(f"{where} must be a list, or one of {', '.join(KINDS)} with two limits; got {space!r}")
    numbers = isinstance(limits, list) and len(limits) == 2 and all(type(limit) in (int, float) for limit in limits)
    if not numbers or not limits[0] < limits[1] or (kind == "log_uniform" and limits[0] <= 0):
        above = " above 0" if kind == "log_uniform" else ""
        raise UserError(f"{where}: {kind} needs two numbers{above}, the lower one first; got {limits!r}")
    if kind == "integer" and any(type(limit) is not int for limit in limits):
        raise UserError(f"{where}: integer needs whole numbers; got {limits!r}")


def draws(section: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the overrides of each draw, without duplicates.

    A value depends only on seed, number of the draw, and key. So a larger budget adds draws, and a new key does not
    change the values of others.
    """
    points: list[dict[str, Any]] = []
    for number in range(section["budget"]):
        drawn = {}
        for key, space in section["keys"].items():
            source = random.Random(f"{section.get('seed', 0)} {number} {key}")
            if isinstance(space, list):
                drawn[key] = source.choice(space)
            else:
                kind, (low, high) = next(iter(space.items()))
                drawn[key] = KINDS[kind](source, low, high)
        if drawn not in points:
            points.append(drawn)
    return points
