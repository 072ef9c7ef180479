"""JSON files of run and sweep folders, and YAML files that users write or that come with a run folder."""

import math
import os
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

import yaml

from datamodules.documents import UserError
from datamodules.text.lines import load_json

REMEDY = "restore it, or remove it and make it again"
MOST_VALUES = 100_000  # values of a config; those of the suite have some hundred
NO_CONFIG = "not a config: it has no keys at the top; see experiments/configs for examples"


def check_outputs(**paths: Path | None) -> None:
    """Raise a `UserError` if a file for the output cannot be written, before minutes of work; keywords are options."""
    for option, path in paths.items():
        if path is None:
            continue
        existing = next(parent for parent in path.absolute().parents if parent.exists())  # nearest existing folder
        if path.is_dir() or not existing.is_dir() or not os.access(existing, os.W_OK):
            raise UserError(f"{path}: no file can be written there; choose another one with --{option}")


def read_json(path: Path, **types: Any) -> dict[str, Any]:
    """Return the object in a JSON file; a `UserError` unless it has the keys of `types`, with values of these types."""
    try:
        content = load_json(path.read_text(encoding="utf-8-sig"))
    except (ValueError, OSError) as error:
        raise UserError(f"{path}: cannot be read ({' '.join(str(error).split())}); {REMEDY}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: not a JSON object; {REMEDY}")
    for key, kind in types.items():
        if key not in content:
            raise UserError(f"{path}: the key {key!r} is missing; {REMEDY}")
        if not _has_type(content[key], kind):
            raise UserError(f"{path}: the value of {key!r} has a wrong type; {REMEDY}")
    return content


def _has_type(value: Any, kind: Any) -> bool:
    """Return whether a JSON value has a type: a class, a union, `list[T]` or `dict[str, T]`; T is checked, too."""
    origin, arguments = get_origin(kind) or kind, get_args(kind)  # list and (int,) for list[int]
    if origin is UnionType:
        return any(_has_type(value, part) for part in arguments)
    if not isinstance(value, origin) or (origin is int and isinstance(value, bool)):  # a bool is an int in Python
        return False
    items = value.values() if isinstance(value, dict) else value  # keys are strings in JSON
    return not arguments or all(_has_type(item, arguments[-1]) for item in items)  # the last argument is T


def read_yaml(path: Path, no_mapping: str = NO_CONFIG) -> dict[str, Any]:
    """Return the mapping in a YAML file; a `UserError` with the line of a mistake, or `no_mapping` if it has none."""
    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)  # errors that `load_yaml` makes have no line
        line = f":{mark.line + 1}" if mark is not None else ""
        raise UserError(f"{path}{line}: no YAML ({getattr(error, 'problem', None) or error}); fix it") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start}); convert it") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: {no_mapping}")
    return content


def load_yaml(text: str) -> Any:
    """Return the value of a YAML text; a `YAMLError` if it has more than `MOST_VALUES` values, aliases expanded."""
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _unfolded_size(node, {}) > MOST_VALUES:  # checked before merge keys (<<) copy values
            raise yaml.YAMLError(f"its aliases (*name) unfold to more than {MOST_VALUES:,} values; write them out")
        return loader.construct_document(node)
    # YAML that is nested too deeply, an invalid number or date, or a tag (!!int) that does not fit the value
    except (RecursionError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise yaml.YAMLError(f"it cannot be read: {error}") from None


def _unfolded_size(node: Any, sizes: dict[int, float]) -> float:
    """Return the number of values in a YAML node, aliases expanded, to limit memory; `sizes` caches them by node id."""
    if isinstance(node, tuple):  # a key with its value
        return sum(_unfolded_size(part, sizes) for part in node)
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in sizes:  # the size of a node with many aliases is computed once
        sizes[id(node)] = math.inf  # replaced below, unless the node contains itself and has no end
        sizes[id(node)] = 1 + sum(_unfolded_size(part, sizes) for part in node.value)
    return sizes[id(node)]
