"""`precis completion`: completion of commands and options in a shell, by shtab."""

import argparse
from typing import Any
from unittest.mock import patch

from jsonargparse import ArgumentParser

from datamodules.documents import CorpusError
from experiments.command_table import COMMANDS, TRAINING, load_command
from experiments.training import fit_parser


class _Captured(Exception):
    """Ends a command as soon as its parser is built."""

    def __init__(self, parser: ArgumentParser) -> None:
        self.parser = parser


def completion(arguments: list[str]) -> None:
    """`precis completion SHELL`: print a script that completes commands and options, for bash, zsh or tcsh."""
    parser = ArgumentParser(prog="precis completion", description=completion.__doc__, exit_on_error=False)
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="the shell")
    options = parser.parse_args(arguments)
    try:
        import shtab
    except ImportError:
        raise CorpusError("shtab is not installed: pip install 'precis-suite[completion]'") from None
    print(shtab.complete(_whole_parser(), options.shell))


def _whole_parser() -> argparse.ArgumentParser:
    """Return a plain parser with every command and its options, which is what shtab reads."""
    import shtab

    whole = argparse.ArgumentParser(prog="precis")
    commands = whole.add_subparsers()
    for name, command in COMMANDS.items():
        plain = commands.add_parser(name, help=command.purpose)
        for action in _parser_of(name)._actions:
            # shtab knows nothing of jsonargparse's own actions, so each becomes a plain option with a value or without
            flags = [option for option in action.option_strings if not option.endswith("+")]
            if "--help" in flags or action.help == argparse.SUPPRESS:
                continue
            takes_value: dict[str, Any] = {"action": "store_true"} if flags and action.nargs == 0 else {}
            added = plain.add_argument(*(flags or [action.dest]), help="", **takes_value)
            if not takes_value:
                added.complete = shtab.FILE
    return whole


def _parser_of(name: str) -> ArgumentParser:
    """Return the parser of a command."""
    if name in TRAINING:
        return fit_parser(name)

    def capture(parser: ArgumentParser, *_: Any, **__: Any) -> None:
        raise _Captured(parser)

    with patch.object(ArgumentParser, "parse_args", capture):
        try:
            load_command(name)([])
        except _Captured as captured:
            return captured.parser
    raise AssertionError(f"{name} parses no arguments")
