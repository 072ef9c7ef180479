"""Walks through nested values, such as configs."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jsonargparse import Namespace


def leaves(value: Any, where: str = "", into_lists: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield (key, value) of each value or empty group in a config, with keys such as `trainer.callbacks[0].class_path`.

    With `into_lists=False`, a list is a single value.
    """
    if isinstance(value, Namespace):
        value = vars(value)
    if isinstance(value, Mapping) and value:
        for key, part in value.items():
            yield from leaves(part, f"{where}.{key}" if where else str(key), into_lists)
    elif into_lists and isinstance(value, (list, tuple, set)) and value:
        for number, part in enumerate(value):
            yield from leaves(part, f"{where}[{number}]")
    else:
        yield where, value


def get_value(values: Any, key: str) -> Any:
    """Return the value of a dotted key such as `encoder.checkpoint` in nested mappings; None if there is none."""
    for name in key.split("."):
        values = values.get(name) if isinstance(values, (Mapping, Namespace)) else None
    return values


def set_value(values: dict[str, Any], key: str, value: Any) -> None:
    """Set the value of a dotted key in nested dictionaries, which are made where they are missing or None."""
    *groups, name = key.split(".")
    for group in groups:
        values[group] = values.get(group) or {}
        values = values[group]
    values[name] = value


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """Return nested dictionaries and lists with a function applied to each string that is a value in them."""
    if isinstance(value, dict):
        return {key: map_strings(part, change) for key, part in value.items()}
    if isinstance(value, list):
        return [map_strings(part, change) for part in value]
    return change(value) if isinstance(value, str) else value
