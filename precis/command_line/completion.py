"""`precis completion`: completion of commands and options in a shell, by shtab."""

import argparse
from types import ModuleType
from typing import Any

from jsonargparse import ArgumentParser

from datamodules.documents import UserError
from precis.config.command_table import COMMANDS


def completion(arguments: list[str]) -> None:
    """`precis completion SHELL`: print a script that completes commands and options, for bash, zsh or tcsh."""
    parser = ArgumentParser(prog="precis completion", description=completion.__doc__, exit_on_error=False)
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="the shell")
    options = parser.parse_args(arguments)
    try:
        import shtab
    except ImportError:
        raise UserError("shtab is not installed: pip install 'precis-suite[completion]'") from None
    print(shtab.complete(_whole_parser(), options.shell))


def _whole_parser() -> argparse.ArgumentParser:
    """Return a plain parser with every command and its options, which is what shtab reads."""
    import shtab

    import datamodules.corpora
    import lightning_modules
    from precis.command_line.command_parsers import find_parser  # imports all that a command may name

    corpora = datamodules.corpora
    groups = {"--model": lightning_modules, "--data": datamodules, "--data.corpus": corpora, "--corpus": corpora}
    parser = argparse.ArgumentParser(prog="precis")
    commands = parser.add_subparsers()
    for name, command in COMMANDS.items():
        subparser = commands.add_parser(name, help=command.purpose)
        command_parser, _ = find_parser(name, [])
        for action in command_parser._actions:
            # shtab knows nothing of jsonargparse's own actions, so each becomes a plain option with a value or without
            flags = [option for option in action.option_strings if not option.endswith("+")]
            if "--help" in flags or action.help == argparse.SUPPRESS:
                continue
            takes_value: dict[str, Any] = {"action": "store_true"} if flags and action.nargs == 0 else {}
            added = subparser.add_argument(*(flags or [action.dest]), help="", **takes_value)
            if not takes_value:
                added.complete = shtab.FILE
            for group, package in groups.items():
                if group.partition(".")[0] in flags:
                    _add_class_options(subparser, group, package)
    return parser


def _add_class_options(subparser: argparse.ArgumentParser, group: str, package: ModuleType) -> None:
    """Add the options of all classes of a package to a group such as `--model`; which will be chosen is not known."""
    import shtab

    from precis.config.similar_names import class_options

    classes = [getattr(package, name) for name in package.__all__]
    for name in sorted({option for kind in classes for option in class_options(kind)}):
        if f"{group}.{name}" not in subparser._option_string_actions:
            subparser.add_argument(f"{group}.{name}", help="").complete = shtab.FILE
