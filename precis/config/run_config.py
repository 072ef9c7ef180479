"""The config of a run folder, read without the libraries of its classes; its keys and values in labels and commands."""

import json
import re
from pathlib import Path
from typing import Any

from datamodules.documents import UserError
from lightning_modules.exported import EXPORTED
from precis.files.data_files import read_yaml
from precis.files.nested_values import map_strings

IN_FOLDER = "{run}"  # stands for the folder itself in the config of an exported model


def read_config(run: Path) -> dict[str, Any]:
    """Return config.yaml of a run folder or exported model; only in the latter, `{run}` is replaced by the folder."""
    path = Path(run) / "config.yaml"
    if not path.is_file():
        raise UserError(f"{path}: not found; give the folder of a run that `precis fit` made")
    config = read_yaml(path)
    if not (Path(run) / EXPORTED).is_file():  # a run, in whose config `{run}` has no meaning
        return config

    def in_this_folder(text: str) -> str:  # `{run}` and `{run}/encoder`, but not `{run}2`
        return f"{run}{text.removeprefix(IN_FOLDER)}" if f"{text}/".startswith(f"{IN_FOLDER}/") else text

    return map_strings(config, in_this_folder)


def short_key(key: str, keys: set[str]) -> str:
    """Return the shortest suffix of a dotted key that no other of `keys` has, such as `lr` for `optimizer.lr`."""
    parts = key.split(".")
    for count in range(1, len(parts)):
        end = ".".join(parts[-count:])
        if sum(f".{candidate}".endswith(f".{end}") for candidate in keys) == 1:  # `key` alone
            return end
    return key


def format_value(value: Any) -> str:
    """Return a config value for a label: a class by its name without the module, entries of a list joined by `+`."""
    if isinstance(value, dict):
        return format_value(value["class_path"]) if "class_path" in value else as_flag(value)
    if isinstance(value, list):
        return "+".join(map(format_value, value))
    text = as_flag(value)  # a string as it is, others as JSON
    return text.rsplit(".", 1)[-1] if re.fullmatch(r"[A-Za-z_][\w.]*\.[A-Z]\w*", text) else text  # 0.5 and files stay


def as_flag(value: Any) -> str:
    """Return a value in the form of the command line: a string as it is, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
