"""Ctrl-C, and a full disk, in commands that do not train: one line, a status, no traceback."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from datamodules.atomic_write import LOCK
from datamodules.corpora import Files

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]


def run_python(script: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)


def test_ctrl_c_while_arguments_are_parsed(tiny_config, tmp_path, precis, monkeypatch):
    for where in ("training_commands.check_configs", "training.command_line"):
        with monkeypatch.context() as patch:
            patch.setattr(f"precis.training.{where}", Mock(side_effect=KeyboardInterrupt))
            done = precis("fit", "--config", tiny_config, "--run_dir", tmp_path / "run")
        assert (done.status, done.err) == (130, "precis: interrupted\n")


@pytest.mark.parametrize("command, number, status, said", [
    ("corpus", signal.SIGINT, 130, "precis: interrupted\n"),
    ("fit", signal.SIGTERM, 143, ""),
])  # fmt: skip
def test_a_signal_while_documents_are_read_leaves_nothing_half_written(
    command, number, status, said, tiny_config, source, tmp_path, precis, monkeypatch
):
    run, cache = tmp_path / "run", tmp_path / "cache"
    monkeypatch.setattr(Files, "records", lambda *_: os.kill(os.getpid(), number))
    monkeypatch.setenv("PRECIS_CACHE", str(cache))
    done = precis(command, *(source if command == "corpus" else ["--config", tiny_config, "--run_dir", run]))
    assert done.status == status and done.err.endswith(said) and "Traceback" not in done.err
    assert not run.exists() and [path.name for path in cache.rglob("*")] == [LOCK]


def test_ctrl_c_while_modules_are_imported():
    """The signal comes at an exact place: the import of what carries commands out."""
    done = run_python(
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'precis.command_line.run_command': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from precis.command_line.cli import main\n"
        "sys.exit(main(['corpus']))"
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "precis: interrupted\n")


@pytest.mark.parametrize("arguments", [["--help"], ["corpus", "--help"]])
def test_output_that_nobody_reads_is_no_error(arguments):
    """As of `precis --help | head -1`."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "precis.command_line.cli", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_a_disk_that_is_full_in_a_test_is_named_with_the_file(run_folder, precis):
    predictions = run_folder / "predictions.jsonl"
    (run_folder / ".predictions.jsonl.rank0").symlink_to("/dev/full")  # where they are collected
    done = precis("test", "--run", run_folder, "--trust")  # a link that leads out of a run is refused otherwise
    done.refused("No space left on device; free some space", str(predictions))
    assert not predictions.exists() and not list(run_folder.glob(".predictions*"))


IN_DESTRUCTOR = """
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        print("closed")
"""
IN_CONSTRUCTOR = """
    def __init__(self):
        os.kill(os.getpid(), signal.{name})
        self.position = 0
    def __del__(self):
        self.position += 1
"""


@pytest.mark.parametrize("methods", [IN_DESTRUCTOR, IN_CONSTRUCTOR])
@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_in_a_constructor_or_destructor_ends_the_command(methods, name, status):
    """Python ignores exceptions of destructors: of signal handlers, and of half-constructed objects."""
    done = run_python(
        "import os, signal, sys, time\n"
        "from precis.command_line import run_command\n"
        "from precis.command_line.cli import main\n"
        f"class Closed:{methods.format(name=name)}\n"
        "def work(arguments):\n"
        "    Closed()\n"
        "    time.sleep(60)\n"
        "run_command.run = work\n"
        "sys.exit(main(['corpus']))"
    )
    assert done.returncode == status and "Traceback" not in done.stderr and "closed" not in done.stdout
