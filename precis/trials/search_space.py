"""Section `search` of a sweep file: which values a search may try, and how it chooses them.

    search: {trials: 20, sampler: tpe, pruner: median, keys: {
        optimizer.lr: {log_uniform: [0.0001, 0.01]},
        model.hidden_size: {integer: [64, 256], step: 64},
        model.coverage: [true, false],  # the same as {values: [true, false]}
        trainer.callbacks.weight: {uniform: [0.1, 2], when: {model.coverage: true}}}}

docs/search.md explains all keys. A key with `when` is only set where another key, listed before it, has that value.
"""

from collections import ChainMap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datamodules.documents import UserError
from precis.config.run_config import as_flag

if TYPE_CHECKING:
    from optuna import Trial

DEFAULTS = {"sampler": "tpe", "pruner": "none", "startup": 10, "warmup": 1, "seed": 0}
CHOICES = {
    "sampler": ("tpe", "random"),
    "pruner": ("none", "median", "hyperband"),
    "direction": ("maximize", "minimize"),
}
RANGES = ("uniform", "log_uniform", "integer", "log_integer")

JOURNAL = "search.journal"  # file in a sweep folder with a search


def check_search(path: Path, section: dict[str, Any]) -> None:
    """Check the section `search` of a sweep file, and fill in its defaults; a `UserError` names a key that is wrong."""
    where = f"{path}: search"
    allowed_keys = ("trials", *DEFAULTS, "metric", "direction", "keys")
    if unknown := sorted(section.keys() - set(allowed_keys)):
        raise UserError(f"{where}: unknown key {unknown[0]!r}; it has {', '.join(allowed_keys)}")
    for key, value in DEFAULTS.items():
        section.setdefault(key, value)
    for key, allowed in CHOICES.items():
        if key in section and section[key] not in allowed:
            raise UserError(f"{where}: {key} must be one of {', '.join(allowed)}; got {section[key]!r}")
    for key, minimum in (("trials", 1), ("startup", 0), ("warmup", 0), ("seed", 0)):
        value = section.get(key)
        if type(value) is not int or value < minimum:  # not `isinstance`, because a bool is an int
            raise UserError(f"{where}: {key} must be a whole number, at least {minimum}; got {value!r}")
    metric = section.get("metric", "val/")  # without one, the base config has the metric; "val/" passes the check
    if not isinstance(metric, str) or not metric.startswith("val/"):
        raise UserError(f"{where}: metric must be one of the validation, such as val/rouge1; got {metric!r}")
    keys = section.get("keys")
    if not isinstance(keys, dict) or not keys:
        raise UserError(f"{where}: keys must map config keys to distributions; got {keys!r}")
    for number, (key, space) in enumerate(keys.items()):
        _check_space(f"{where}: {key}", space)
        earlier = dict(list(keys.items())[:number])  # a condition can only depend on keys that are listed before
        _check_condition(f"{where}: {key}", _list_as_values(space).get("when", {}), earlier)


def _check_space(where: str, space: Any) -> None:
    """Raise a `UserError` unless a space is a list of `values` or a valid range (`RANGES`); `when` is not checked."""
    space = _list_as_values(space)
    kinds = [name for name in space if name not in ("step", "when")] if isinstance(space, dict) else []
    limits = space[kinds[0]] if len(kinds) == 1 else None  # limits of a range, or the list of values
    if not isinstance(limits, list) or not limits or kinds[0] not in ("values", *RANGES):
        remedy = f"a list with a value at least, or one of {', '.join(RANGES)} with two limits"
        raise UserError(f"{where} must be {remedy}; got {space!r}")
    (kind,) = kinds
    number_types = (int,) if kind.endswith("integer") else (int, float)  # not bool, which is an int in Python
    whole = "whole " if kind.endswith("integer") else ""
    if kind != "values":
        are_numbers = len(limits) == 2 and all(type(limit) in number_types for limit in limits)
        is_log = kind.startswith("log_")
        if not are_numbers or not limits[0] < limits[1] or (is_log and limits[0] <= 0):
            above = " above 0" if is_log else ""
            raise UserError(f"{where}: {kind} needs two {whole}numbers{above}, the lower one first; got {limits!r}")
    if "step" in space and kind not in ("uniform", "integer"):
        raise UserError(f"{where}: step only goes with uniform and integer; leave it out")
    step = space.get("step", 1)
    if type(step) not in number_types or step <= 0:
        raise UserError(f"{where}: step must be a {whole}number above 0; got {step!r}")


def _check_condition(where: str, condition: Any, earlier: dict[str, Any]) -> None:
    """Raise a `UserError` if a condition (`when`) does not map keys listed `earlier` to values that they may have."""
    if not isinstance(condition, dict):
        raise UserError(f"{where}: when must map keys of the search to values; got {condition!r}")
    for other, value in condition.items():
        if other not in earlier:
            raise UserError(f"{where}: when: {other} must be a key of the search that is listed before it")
        values = _list_as_values(earlier[other]).get("values", [])  # none for a range, which any value may be in
        if values and value not in values:
            raise UserError(f"{where}: when: {other} is never {value!r}; it is one of {values}")


def _list_as_values(space: Any) -> Any:
    """Return a space that is a plain list, the short form, as `{values: [...]}`, and other spaces as they are."""
    return {"values": space} if isinstance(space, list) else space


def suggest(trial: "Trial", keys: dict[str, Any]) -> dict[str, Any]:
    """Return a value of each key whose condition `when` holds; a trial that was begun before gets its stored values."""
    values: dict[str, Any] = {}
    for key in keys:
        space = _list_as_values(keys[key])
        if any(other not in values or values[other] != value for other, value in space.get("when", {}).items()):
            continue  # the condition does not hold
        kind = next(name for name in space if name not in ("step", "when"))  # "values" or a range such as "uniform"
        if kind == "values":
            # Optuna stores no lists or mappings, which choices may be, so it gets them in the form of the command line.
            by_flag = {as_flag(value): value for value in space[kind]}
            values[key] = by_flag[trial.suggest_categorical(key, list(by_flag))]
            continue
        low, high = space[kind]
        is_log = kind.startswith("log_")
        if kind.endswith("integer"):
            values[key] = trial.suggest_int(key, low, high, step=space.get("step", 1), log=is_log)
        else:
            values[key] = trial.suggest_float(key, low, high, step=space.get("step"), log=is_log)
    return values


def extreme_points(keys: dict[str, Any]) -> list[dict[str, Any]]:
    """Return overrides of the config that each set one key to a limit or choice, to test that models accept them."""
    points = []
    conditions: dict[str, dict[str, Any]] = {}  # by key, with the conditions of the keys that it depends on
    for key in keys:
        space = _list_as_values(keys[key])
        kind = next(name for name in space if name not in ("step", "when"))  # "values" or a range such as "uniform"
        when = space.get("when", {})
        conditions[key] = dict(ChainMap(when, *(conditions[other] for other in when)))
        points += [conditions[key] | {key: value} for value in space[kind]]
    return points
