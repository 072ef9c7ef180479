"""YAML files that users write or that come with a run folder."""

import math
from pathlib import Path
from typing import Any

import yaml

from datamodules.documents import CorpusError

MOST_VALUES = 100_000  # values of a config; those of the suite have some hundred
NO_CONFIG = "not a config: it has no keys at the top; see experiments/configs for examples"


def read_yaml(path: Path, no_mapping: str = NO_CONFIG) -> dict[str, Any]:
    """Return the mapping in a YAML file.

    Args:
        path: path of the file.
        no_mapping: message if the file is not a mapping.

    Raises:
        CorpusError: if the file is not a YAML mapping; the message has the line.
        OSError: if it cannot be read.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise CorpusError(f"{path}{line}: no YAML ({getattr(error, 'problem', None) or error}); fix it") from None
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}: not UTF-8 text (byte {error.start}); convert it") from None
    except (RecursionError, ValueError) as error:  # nested too deeply, or an invalid number or date
        raise CorpusError(f"{path}: no YAML that can be read ({error}); fix it") from None
    if not isinstance(content, dict):
        raise CorpusError(f"{path}: {no_mapping}")
    if _unfolded_size(content, {}) > MOST_VALUES:
        raise CorpusError(f"{path}: its aliases (*name) unfold to more than {MOST_VALUES:,} values; write them out")
    return content


def _unfolded_size(value: Any, sizes: dict[int, float]) -> float:
    """Return the number of values with all aliases expanded; infinite for recursive ones."""
    if not isinstance(value, (dict, list)):
        return 1
    if id(value) not in sizes:
        sizes[id(value)] = math.inf  # until it is known: an alias inside itself has no end
        parts = value.values() if isinstance(value, dict) else value
        sizes[id(value)] = 1 + sum(_unfolded_size(part, sizes) for part in parts)
    return sizes[id(value)]
