"""`precis completion`: completion of commands and options in a shell, by shtab."""

import argparse
from typing import Any

from jsonargparse import ArgumentParser, capture_parser

import datamodules.corpora
import lightning_modules
from datamodules.documents import UserError
from precis.config.command_table import COMMANDS, TRAINING, load_command
from precis.config.parse_errors import class_options


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
    """Return a parser of argparse with every command and its options, the form that shtab reads."""
    import shtab

    corpora = datamodules.corpora
    groups = {"--model": lightning_modules, "--data": datamodules, "--data.corpus": corpora, "--corpus": corpora}
    parser = argparse.ArgumentParser(prog="precis")
    commands = parser.add_subparsers()
    for name, command in COMMANDS.items():
        subparser = commands.add_parser(name, help=command.purpose)
        for action in _parser_of(name)._actions:
            # shtab knows nothing of jsonargparse's own actions, so each becomes a plain option with a value or without
            flags = [option for option in action.option_strings if not option.endswith("+")]  # --x+ appends to --x
            if "--help" in flags or action.help == argparse.SUPPRESS:
                continue
            no_value: dict[str, Any] = {"action": "store_true"} if flags and action.nargs == 0 else {}
            added = subparser.add_argument(*(flags or [action.dest]), help="", **no_value)  # dest: if positional
            if not no_value:
                added.complete = shtab.FILE  # the shell offers file names; choices are not copied
            for group, package in groups.items():  # the value of a group such as --model is a class of the package
                # options of all classes of the package, as any may be chosen; with --data, also the group --data.corpus
                class_names = package.__all__ if group.partition(".")[0] in flags else []
                options = {option for name in class_names for option in class_options(getattr(package, name))}
                for option in sorted(options):
                    if f"{group}.{option}" not in subparser._option_string_actions:  # unless the command has it
                        subparser.add_argument(f"{group}.{option}", help="").complete = shtab.FILE
    return parser


def _parser_of(command: str) -> ArgumentParser:
    """Return the parser of a command, which runs until its parser is complete."""
    if command in TRAINING:
        from precis.training.training import fit_parser  # imports torch and Lightning

        return fit_parser(command)
    return capture_parser(load_command(command), [])
