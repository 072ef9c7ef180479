"""The commands of `precis`: group, purpose, example and import path, so that a command loads only what it needs."""

import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple


class Command(NamedTuple):
    """A command of `precis`."""

    group: str  # the heading under which `precis --help` lists it
    purpose: str  # what it does, in a few words
    function: str  # import path of a function that takes the remaining arguments
    example: str  # a complete call


TRAINING = ("fit", "validate", "test", "predict")

_TABLE = Path(__file__).with_name("commands.toml")
COMMANDS = {name: Command(**row) for name, row in tomllib.loads(_TABLE.read_text(encoding="utf-8")).items()}
OTHER_NAMES = {"train": "fit", "score": "evaluate", "generate": "predict"}  # commands by their names in other tools


def load_command(name: str) -> Callable[[list[str]], None]:
    """Import and return the function that runs a command; it takes the arguments after the command's name."""
    module, _, function = COMMANDS[name].function.partition(":")
    return getattr(import_module(module), function)


def list_commands() -> str:
    """Return the commands by group, each with its purpose and an example."""
    width = max(len(name) for name in COMMANDS)
    lines = []
    for group in dict.fromkeys(command.group for command in COMMANDS.values()):
        lines.append(f"\n{group}")
        for name, command in COMMANDS.items():
            if command.group == group:
                lines += [f"  {name:{width}}  {command.purpose}", f"  {'':{width}}  {command.example}"]
    return "\n".join(lines)
