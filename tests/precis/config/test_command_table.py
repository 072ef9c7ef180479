"""Help of the command: groups, and an example first."""

import pytest

from precis.config.command_table import COMMANDS


def test_help_lists_every_command_once_under_its_group(precis):
    lines = precis("--help").out.splitlines()
    groups = ("train", "use", "evaluate", "launch", "discourse", "installation", "shell")
    headings = [line for line in lines if line in groups]
    assert headings == list(dict.fromkeys(command.group for command in COMMANDS.values()))
    listed = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
    assert sorted(listed) == sorted(COMMANDS)


@pytest.mark.parametrize("command", ["evaluate", "compare", "sweep"])
def test_help_of_a_command_begins_with_an_example(command, precis):
    done = precis(command, "--help").succeeded()
    assert done.out.startswith(f"example: {COMMANDS[command].example}\n")
    assert COMMANDS[command].example.startswith(f"precis {command} ")
