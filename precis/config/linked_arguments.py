"""Arguments that model and data share: they are set for the model and linked to the data."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from datamodules.documents import UserError
from precis.config.shipped import named_configs
from precis.files.yaml_files import read_yaml

LINKED = {  # argument of the data -> argument of the model
    "vocab_size": "vocab_size",
    "inventory": "inventory",
    "ablation": "injection.ablation",
    "checkpoint": "encoder.checkpoint",
    "agents": "agents",
}
_SOURCES = ", ".join(LINKED.values())
NOTE = f"Where the model has them too, these are given for the model alone (--model.NAME): {_SOURCES}\n"


def link_arguments(parser: ArgumentParser) -> None:
    """Link arguments of the model to the data; config.yaml then has only those of the model."""
    for name, source in LINKED.items():
        parser.link_arguments(f"model.init_args.{source}", f"data.init_args.{name}")


def check_linked(arguments: Sequence[str], config: Namespace) -> None:
    """Raise a `UserError` if an argument of the data is set that a link to the model would silently replace."""
    model_arguments = config.get("model", {}).get("init_args", Namespace())
    data_arguments = config.get("data", {}).get("init_args", {})
    for name, where, remedy in _linked_names_of_data(arguments):
        if LINKED[name] in model_arguments and name in data_arguments:
            raise UserError(f"{where}: the data takes it from the model; {remedy}")


def _linked_names_of_data(arguments: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield linked names that are set for the data: (name, where, what to do)."""
    for flag in (argument.partition("=")[0] for argument in arguments):
        name = flag.removeprefix("--data.").removeprefix("init_args.")
        if flag.startswith("--data.") and name in LINKED:
            yield name, flag, f"give --model.{LINKED[name]}"
    for _, path in named_configs(arguments):
        for name in _data_of(Path(path)):
            if name in LINKED:
                yield name, f"{path}: data.{name}", f"give model.{LINKED[name]} alone"


def _data_of(path: Path) -> dict[str, Any]:
    """Return the arguments of the data in a config file, which can be read."""
    data = read_yaml(path).get("data")
    return (data.get("init_args") or {}) if isinstance(data, dict) else {}
