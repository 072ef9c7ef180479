"""Arguments that model and data share: they are given for the model, and the data takes them from there."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser, Namespace

from datamodules.documents import CorpusError

LINKED = ("vocab_size", "encoder", "inventory", "ablation", "checkpoint", "agents")
NOTE = f"Where the model has them too, these are given for the model alone (--model.NAME): {', '.join(LINKED)}\n"


def link_arguments(parser: ArgumentParser) -> None:
    """Hands the model's value on to the data; config.yaml then leaves the data's out."""
    for name in LINKED:
        parser.link_arguments(f"model.init_args.{name}", f"data.init_args.{name}")


def check_linked(arguments: Sequence[str], config: Namespace) -> None:
    """Refuses a value for the data that the model's would replace in silence.

    Args:
        arguments: of the command line.
        config: what was made of them, with `model` and `data`.

    Raises:
        CorpusError: if there is one, with the argument or the file.
    """
    here, there = (config.get(group, {}).get("init_args", {}) for group in ("model", "data"))
    for name, where, remedy in _given_for_data(arguments):
        if name in here and name in there:
            raise CorpusError(f"{where}: the data takes it from the model; {remedy}")


def _given_for_data(arguments: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Names that are given for the data: (name, where, what to do)."""
    for index, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag.startswith("--data."):
            name = flag.removeprefix("--data.").removeprefix("init_args.")
            if name in LINKED:
                yield name, flag, f"give --model.{name}"
        if flag in ("--config", "-c"):
            path = Path(value if equals else "".join(arguments[index + 1 : index + 2]))
            for name in _data_of(path):
                if name in LINKED:
                    yield name, f"{path}: data.{name}", "give it there alone"


def _data_of(path: Path) -> dict[str, Any]:
    """Arguments of the data in a config file, which was read before."""
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    data = config.get("data")
    return (data.get("init_args") or {}) if isinstance(data, dict) else {}
