"""Upgrade of configs of earlier versions: removed, renamed and moved names.

Run folders contain every argument of their run, including arguments that no longer exist.
"""

from collections.abc import Sequence
from typing import Any

from precis.files.nested_values import map_strings

# Section -> removed keys, which only affected speed.
REMOVED = {"model": ("compile_network", "decoding.screening")}
# Class -> keys that it took and had no use for.
UNUSED = {"datamodules.BertSumAbsData": ("oracle_sentences", "min_words", "max_words")}
# Section -> former name -> present name.
RENAMED: dict[str, dict[str, str]] = {
    "data": {"text": "tokenizer_dir"},
    "model": {"least": "min_prob", "reach": "long_input"},
}

# Former class path -> present class path.
MOVED = {
    "lightning_modules.zero_shot.ZeroShot": "lightning_modules.extractive.zero_shot.ZeroShot",
    "experiments.run_scorer.RunScorer": "precis.training.run_scorer.RunScorer",
}


def upgrade(config: Any) -> Any:
    """Return a config with the keys of this version.

    Args:
        config: content of a YAML file; anything but a mapping with sections is returned unchanged.
    """
    if not isinstance(config, dict):
        return config
    config = map_strings(config, lambda text: MOVED.get(text, text))
    for section in ("model", "data"):
        arguments = config.get(section)
        arguments = arguments.get("init_args") if isinstance(arguments, dict) else None
        if not isinstance(arguments, dict):
            continue
        unused = UNUSED.get(str(config[section].get("class_path")), ())  # broken configs may have any type here
        for key in (*REMOVED.get(section, ()), *unused):
            _remove(arguments, key)
        for former, present in RENAMED.get(section, {}).items():
            if former in arguments:
                arguments.setdefault(present, arguments.pop(former))
    return config


def upgrade_flags(arguments: Sequence[str]) -> list[str]:
    """Return command-line arguments with the keys of this version."""
    flags = {
        f"--{section}.{group}{former}": f"--{section}.{present}"
        for section, names in RENAMED.items()
        for former, present in names.items()
        for group in ("", "init_args.")
    }
    upgraded = []
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        upgraded.append(f"{flags.get(flag, flag)}{equals}{value}")
    return upgraded


def _remove(arguments: dict[str, Any], key: str) -> None:
    first, _, remaining = key.partition(".")
    if not remaining:
        arguments.pop(first, None)
    elif isinstance(arguments.get(first), dict):
        _remove(arguments[first], remaining)
