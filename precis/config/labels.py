"""Names and values of config keys in tables, labels and command lines."""

import json
import re
from typing import Any


def short_key(key: str, keys: set[str]) -> str:
    """Return the shortest end of a dotted key that no other key ends in."""
    parts = key.split(".")
    for count in range(1, len(parts)):
        end = "." + ".".join(parts[-count:])
        matches = sum(f".{candidate}".endswith(end) for candidate in keys)
        if matches == 1:
            return end[1:]
    return key


def format_value(value: Any) -> str:
    """Return a config value for a label: a class by its name, the entries of a list joined by `+`."""
    if isinstance(value, dict):
        return format_value(value["class_path"]) if "class_path" in value else as_flag(value)
    if isinstance(value, list):
        return "+".join(map(format_value, value))
    text = as_flag(value)
    return text.rsplit(".", 1)[-1] if re.fullmatch(r"[A-Za-z_][\w.]*", text) else text


def as_flag(value: Any) -> str:
    """Return a value in the form of the command line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
