"""YAML files that users write or that come with a run folder."""

import math
from pathlib import Path
from typing import Any

import yaml

from datamodules.documents import UserError

MOST_VALUES = 100_000  # values of a config; those of the suite have some hundred
NO_CONFIG = "not a config: it has no keys at the top; see experiments/configs for examples"


def read_yaml(path: Path, no_mapping: str = NO_CONFIG) -> dict[str, Any]:
    """Return the mapping in a YAML file.

    Args:
        path: path of the file.
        no_mapping: message if the file is not a mapping.

    Raises:
        UserError: if the file is not a YAML mapping; the message has the line.
        OSError: if it cannot be read.
    """
    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise UserError(f"{path}{line}: no YAML ({getattr(error, 'problem', None) or error}); fix it") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start}); convert it") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: {no_mapping}")
    return content


def load_yaml(text: str) -> Any:
    """Return the value of a YAML text.

    Raises:
        YAMLError: if it is not YAML, or its aliases unfold to more values than any config has.
    """
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _unfolded_size(node, {}) > MOST_VALUES:  # before merge keys (<<) copy what they name
            raise yaml.YAMLError(f"its aliases (*name) unfold to more than {MOST_VALUES:,} values; write them out")
        return loader.construct_document(node)
    # nested too deeply, an invalid number or date, or a tag that does not fit the value
    except (RecursionError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise yaml.YAMLError(f"it cannot be read: {error}") from None


def _unfolded_size(node: Any, sizes: dict[int, float]) -> float:
    """Return the number of values in a node with all aliases expanded; infinite for recursive ones."""
    if isinstance(node, tuple):  # a key with its value
        return sum(_unfolded_size(part, sizes) for part in node)
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in sizes:
        sizes[id(node)] = math.inf  # until it is known: an alias inside itself has no end
        sizes[id(node)] = 1 + sum(_unfolded_size(part, sizes) for part in node.value)
    return sizes[id(node)]
