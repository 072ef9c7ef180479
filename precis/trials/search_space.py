"""Section `search` of a sweep file: which values a search may try, and how it chooses them.

search:
  trials: 20                                       # number of trials; may be increased later
  sampler: tpe                                     # tpe (default), random or grid
  pruner: median                                   # median, hyperband or none (default)
  metric: val/rouge1                               # checkpoint.monitor of the base by default
  direction: maximize                              # or minimize; checkpoint.mode of the base by default
  startup: 10                                      # trials that are drawn at random, and that the pruner lets pass
  warmup: 1                                        # validations of a trial before it may be pruned
  seed: 0
  keys:
    optimizer.lr: {log_uniform: [0.0001, 0.01]}
    model.dropout: {uniform: [0.0, 0.5], step: 0.1}
    model.hidden_size: {integer: [64, 256], step: 64}
    data.batch_size: {log_integer: [8, 64]}
    model.coverage: [true, false]
    trainer.callbacks.weight: {uniform: [0.1, 2], when: {model.coverage: true}}

The distributions are those of random search; `step`, `log_integer`, `values` (a list together with `when`) and `when`
exist in searches only. A key with `when` is only set where another key, listed before it, has that value.
"""

import itertools
import math
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datamodules.documents import UserError
from precis.config.labels import as_flag
from precis.trials.random_search import check_distribution

if TYPE_CHECKING:
    from optuna import Trial

SAMPLERS = ("tpe", "random", "grid")
PRUNERS = ("none", "median", "hyperband")
DEFAULTS = {"sampler": "tpe", "pruner": "none", "startup": 10, "warmup": 1, "seed": 0}
CHOICES = {"sampler": SAMPLERS, "pruner": PRUNERS, "direction": ("maximize", "minimize")}
MAX_GRID = 100_000  # points of a grid sampler

JOURNAL = "search.journal"  # file in a sweep folder with a search


# Checks --------------------------------------------------------------------------------------------------------------


def check_search(path: Path, section: dict[str, Any]) -> None:
    """Check the section `search` of a sweep file, and fill in its defaults.

    Raises:
        UserError: for unknown keys, samplers or pruners, invalid numbers, limits or conditions, or a metric that is
            not one of the validation.
    """
    where = f"{path}: search"
    names = ("trials", *DEFAULTS, "metric", "direction", "keys")
    if unknown := sorted(section.keys() - set(names)):
        raise UserError(f"{where}: unknown key {unknown[0]!r}; it has {', '.join(names)}")
    for key, value in DEFAULTS.items():
        section.setdefault(key, value)
    for key, allowed in CHOICES.items():
        if key in section and section[key] not in allowed:
            raise UserError(f"{where}: {key} must be one of {', '.join(allowed)}; got {section[key]!r}")
    for key, minimum in (("trials", 1), ("startup", 0), ("warmup", 0), ("seed", 0)):
        value = section.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise UserError(f"{where}: {key} must be a whole number, at least {minimum}; got {value!r}")
    metric = section.get("metric", "val/")
    if not isinstance(metric, str) or not metric.startswith("val/"):
        raise UserError(f"{where}: metric must be one of the validation, such as val/rouge1; got {metric!r}")
    keys = section.get("keys")
    if not isinstance(keys, dict) or not keys:
        raise UserError(f"{where}: keys must map config keys to distributions; got {keys!r}")
    for key, space in keys.items():
        _check_space(f"{where}: {key}", key, space, keys, section["sampler"])
    size = math.prod(len(grid_values(space)) for space in keys.values())
    if section["sampler"] == "grid" and size > MAX_GRID:
        raise UserError(f"{where}: the grid has {size:,} points, more than {MAX_GRID:,}; increase the steps")


def _check_space(where: str, key: str, space: Any, keys: dict[str, Any], sampler: str) -> None:
    distribution = space
    if isinstance(space, dict):
        distribution = {name: value for name, value in space.items() if name not in ("step", "when")}
    if isinstance(distribution, dict) and distribution.keys() == {"values"}:
        distribution = distribution["values"] if isinstance(distribution["values"], list) else []
    if isinstance(distribution, dict) and distribution.keys() == {"log_integer"}:
        check_distribution(where, {"integer": distribution["log_integer"]})
        distribution = {"log_uniform": distribution["log_integer"]}
    check_distribution(where, distribution)
    if isinstance(space, list):
        return
    step = space.get("step", 1)
    if "step" in space and not space.keys() & {"uniform", "integer"}:
        raise UserError(f"{where}: step only goes with uniform and integer; leave it out")
    if isinstance(step, bool) or not isinstance(step, int if "integer" in space else int | float) or step <= 0:
        raise UserError(f"{where}: step must be a {'whole ' * ('integer' in space)}number above 0; got {step!r}")
    if sampler == "grid" and not grid_values(space):
        raise UserError(f"{where}: the grid sampler needs a list of values, or a uniform or integer with a step")
    if "when" in space:
        _check_condition(where, key, space["when"], keys, sampler)


def _check_condition(where: str, key: str, condition: Any, keys: dict[str, Any], sampler: str) -> None:
    if sampler == "grid":
        raise UserError(f"{where}: the grid sampler takes no keys with when; choose tpe or random")
    if not isinstance(condition, dict) or not condition:
        raise UserError(f"{where}: when must map keys of the search to values; got {condition!r}")
    earlier = list(keys)[: list(keys).index(key)]
    for other, value in condition.items():
        if other not in earlier:
            raise UserError(f"{where}: when: {other} must be a key of the search that is listed before it")
        values = _values(keys[other])
        if values and value not in values:
            raise UserError(f"{where}: when: {other} is never {value!r}; it is one of {values}")


# Values --------------------------------------------------------------------------------------------------------------


def _values(space: Any) -> list:
    """Return the values of a list; empty for a range."""
    return space if isinstance(space, list) else space.get("values", [])


def grid_values(space: Any) -> list:
    """Return all values of a list or of a range with steps; empty for other ranges."""
    if values := _values(space):
        return values
    kind, (low, high) = _range(space)
    if kind not in ("uniform", "integer") or (kind == "uniform" and "step" not in space):
        return []
    step = space.get("step", 1)
    count = math.floor((high - low) / step + 1e-9) + 1  # the addend makes up for rounding, as in 0.3 / 0.1
    values = [low + number * step for number in range(count)]
    return values if kind == "integer" else [round(value, 10) for value in values]


def _range(space: dict[str, Any]) -> tuple[str, tuple[float, float]]:
    kind = next(name for name in space if name not in ("step", "when"))
    return kind, tuple(space[kind])


def grid_points(section: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the points of a grid sampler, as the storage has them, in an order that only depends on the seed."""
    keys = section["keys"]
    columns = [list(map(as_flag, _values(space))) or grid_values(space) for space in keys.values()]
    values = itertools.product(*columns)
    points = [dict(zip(keys, point)) for point in values]
    random.Random(section["seed"]).shuffle(points)
    return points


def suggest(trial: "Trial", keys: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a trial; keys whose condition does not hold are left out.

    For a trial that has values already, they are returned again.
    """
    values: dict[str, Any] = {}
    for key, space in keys.items():
        condition = space.get("when", {}) if isinstance(space, dict) else {}
        if any(other not in values or values[other] != value for other, value in condition.items()):
            continue
        if choices := _values(space):
            # The storage takes no lists or mappings, which choices may be: it has them as on the command line.
            by_flag = {as_flag(value): value for value in choices}
            values[key] = by_flag[trial.suggest_categorical(key, list(by_flag))]
            continue
        kind, (low, high) = _range(space)
        if kind in ("integer", "log_integer"):
            values[key] = trial.suggest_int(key, low, high, step=space.get("step", 1), log=kind == "log_integer")
        else:
            values[key] = trial.suggest_float(key, low, high, step=space.get("step"), log=kind == "log_uniform")
    return values


def extreme_points(keys: dict[str, Any]) -> list[dict[str, Any]]:
    """Return points that show whether the model takes the values: the limits of each range, and each choice."""
    points = []
    for key, space in keys.items():
        condition = space.get("when", {}) if isinstance(space, dict) else {}
        points += [condition | {key: value} for value in _values(space) or _range(space)[1]]
    return points
