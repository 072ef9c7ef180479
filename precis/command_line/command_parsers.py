"""The parsers of commands, without running the commands."""

from typing import Any
from unittest.mock import patch

from jsonargparse import ArgumentParser

from precis.config.command_table import TRAINING, load_command
from precis.training.training import fit_parser


class _Found(Exception):
    """Ends a command where it would parse its arguments."""

    def __init__(self, parser: ArgumentParser, arguments: list[str]) -> None:
        self.parser, self.arguments = parser, arguments


def find_parser(command: str, arguments: list[str]) -> tuple[ArgumentParser, list[str]]:
    """Return the parser that a call of a command uses, and the arguments that it is given.

    Those of `precis sweep status FOLDER`, for example, are the parser of `status` and FOLDER.
    """
    if command in TRAINING:
        return fit_parser(command), arguments

    # The command builds its parser and is stopped by an exception in the place where it would parse its arguments.
    def stop(parser: ArgumentParser, args: list[str], *_: Any, **__: Any) -> None:
        raise _Found(parser, args)

    with patch.object(ArgumentParser, "parse_args", stop):
        try:
            load_command(command)(arguments)
        except _Found as found:
            return found.parser, found.arguments
    raise AssertionError(f"{command} parses no arguments")
