"""Entry point of the command `precis`: imports the standard library alone; each command imports what it needs."""

import difflib
import os
import signal
import sys
from importlib.metadata import version

from precis.config.command_table import COMMANDS, OTHER_NAMES, list_commands

HELP = """usage: precis COMMAND ...   (precis COMMAND --help describes its options)
{commands}

A config may name classes of the suite, optimizers and schedules of torch, and parts of Lightning's Trainer. With
--trust, which every command takes, it may name and run anything (see SECURITY.md).
"""


def main(arguments: list[str] | None = None) -> int:
    """Run `precis` with some arguments, by default those of the process, and return its exit status."""
    try:
        status = _run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
        return status
    except (BrokenPipeError, SystemExit) as end:  # as in `precis ... | head`, which closes the pipe early
        if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):  # rich exits with 1
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that Python's flush at exit does not fail
        return 128 + signal.SIGPIPE


def _run(arguments: list[str]) -> int:
    """Print help or version, or import and run the command that the first argument names; return the exit status."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP.format(commands=list_commands()))
        return 0
    if arguments[0] == "--version":
        print(f"precis {version('precis-suite')}")
        return 0
    command = next((argument for argument in arguments if argument != "--trust"), "")  # --trust may come first
    if command not in COMMANDS:
        similar = difflib.get_close_matches(command, [*OTHER_NAMES, *COMMANDS], n=1)  # OTHER_NAMES: `train` for `fit`
        hint = f"did you mean {OTHER_NAMES.get(similar[0], similar[0])}? " if similar else ""
        print(f"precis: error: precis has no command {command!r}; {hint}it has {', '.join(COMMANDS)}", file=sys.stderr)
        return 1

    try:
        from precis.command_line.run_command import run_command

        return run_command(arguments)
    except KeyboardInterrupt:
        if os.environ.get("PRECIS_DEBUG"):
            raise
        print("precis: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT  # as a shell reports it


if __name__ == "__main__":
    sys.exit(main())
