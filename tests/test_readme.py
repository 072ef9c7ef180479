"""The commands that the README and the configs' headers show are commands that there are."""

import re
import shlex
from pathlib import Path

import pytest

from precis.config.command_table import COMMANDS
from precis.sweeping.composition import compose
from precis.sweeping.grid import read_sweep
from precis.training import training

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def shown() -> list[str]:
    """Command lines of the README's shell blocks and of the configs' headers."""
    blocks = re.findall(r"```bash\n(.*?)```", README, flags=re.S)
    lines = [line for block in blocks for line in re.sub(r"\\\n\s*", "", block).splitlines()]
    for path in sorted((ROOT / "experiments" / "configs").glob("*/*.yaml")):
        header = "".join(line for line in path.read_text(encoding="utf-8").splitlines(True) if line.startswith("#"))
        lines += re.sub(r"\\\n#\s*", "", header).replace("#", "").splitlines()
    return [line.strip().split("  #")[0] for line in lines if line.strip().startswith("precis ")]


def test_there_is_something_to_check():
    assert len(shown()) >= 12


@pytest.mark.parametrize("line", shown())
def test_a_command_that_is_shown_exists(line, monkeypatch):
    monkeypatch.chdir(ROOT)
    _, command, *arguments = shlex.split(line.split(" < ")[0])
    assert command in COMMANDS
    if command == "fit" and "--run" not in arguments:
        training.fit_parser().parse_args(arguments)
    if command == "sweep" and arguments[0] not in ("status", "logs", "cancel", "retry"):
        assert compose(read_sweep(Path(arguments[0])))


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 100
