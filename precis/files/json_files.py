"""JSON files of run and sweep folders."""

from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from datamodules.documents import UserError
from datamodules.text.lines import load_json

REMEDY = "restore it, or remove it and make it again"


def read_json(path: Path, **types: Any) -> dict[str, Any]:
    """Return the object in a JSON file.

    Args:
        path: path of the file.
        types: keys that the object must have, with the types of their values, such as `list[str]`.

    Raises:
        UserError: if the file has no JSON object with these keys and types; the message has its name.
    """
    try:
        content = load_json(path.read_text(encoding="utf-8-sig"))
    except (ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: cannot be read ({reason}); {REMEDY}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: not a JSON object; {REMEDY}")
    for key, kind in types.items():
        if key not in content:
            raise UserError(f"{path}: the key {key!r} is missing; {REMEDY}")
        if not _has_type(content[key], kind):
            raise UserError(f"{path}: the value of {key!r} has a wrong type; {REMEDY}")
    return content


def _has_type(value: Any, kind: Any) -> bool:
    """Return whether a value of JSON has a type, which may be a union, or a list or dictionary with types of parts."""
    origin, parts = get_origin(kind) or kind, get_args(kind)
    if origin is UnionType:
        return any(_has_type(value, part) for part in parts)
    if not isinstance(value, origin) or (origin is int and isinstance(value, bool)):
        return False
    if origin is dict and parts:
        return all(_has_type(part, parts[1]) for part in value.values())
    return not (origin is list and parts) or all(_has_type(part, parts[0]) for part in value)


def folder_beside(path: Path, name: object) -> Path:
    """Return the folder next to a JSON file that names it.

    Raises:
        UserError: if the name leads to another place, which a file of unknown origin could do.
    """
    if not isinstance(name, str) or name in ("", "..") or Path(name).name != name or name.startswith("-"):
        raise UserError(f"{path}: {name!r} is not the name of a folder beside this file; {REMEDY}")
    return path.parent / name
