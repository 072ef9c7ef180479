"""What a command imports before it answers; Ctrl-C and a full disk are one line, a status and no traceback."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from conftest import write

from callbacks import PredictionWriter
from datamodules.atomic_write import LOCK
from datamodules.corpora import Files

pytestmark = pytest.mark.integration

LEARNING = ("torch", "pytorch_lightning", "lightning_fabric", "transformers", "torchmetrics", "datasets", "wandb")
HEAVY = (*LEARNING, "matplotlib", "scipy", "sklearn", "pandas", "nltk", "openai")
LIBRARIES = (*HEAVY, "jsonargparse", "rich", "numpy", "pyarrow", "yaml")

# Commands by the libraries that they may not import.
FORBIDDEN = {
    LIBRARIES: ["", "--help", "--version", "--trust trian"],
    HEAVY: [
        "fit --help", "fit --config MISSING", "evaluate --metrcs rouge",
        "evaluate FILE --metrics rouge,novelty,fragments,repetition,length", "sweep MISSING", "sweep cancel FOLDER",
        "runs FOLDER", "clean --cache_dir FOLDER", "workspaces --dry-run", "corpus --corpus Files",
        "corpus --corpus Files --corpus.trian train.jsonl", "baseline lead --out lead.jsonl", "parse FILE",
        "score-parser MISSING --parsre small", "summarize --checkpoint FOLDER", "report FOLDER --exmaples 2",
        "fit --model.help", "judge --modle NAME", "push FOLDER user/model",
        "attention FOLDER --otu pictures", "graph article.txt --grpah similarity", "demo FOLDER --prot 7860",
    ],
    tuple(name for name in HEAVY if name != "scipy"): ["compare FILE"],  # which has t-tests
    tuple(name for name in LEARNING if name != "datasets"): ["corpus FILE"],
}  # fmt: skip
# Words that ROUGE stems: it leaves those of up to three letters alone.
RECORD = (
    '{"id": "a", "summary": ["the cats were sleeping"], "references": [["several cats slept"]], '
    '"document": ["The cats were sleeping on the veranda ."]}\n'
)


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "predictions.jsonl", RECORD)
    points = '[{"run": "a", "label": "a", "config": {}}]'
    write(tmp_path / "points.json", f'{{"sweep": "one", "base": "one.yaml", "after": [], "points": {points}}}')
    return tmp_path


def imported(commands, libraries, folder) -> str:
    """Run commands one after another in a process, until one has imported one of the libraries; return what it says."""
    script = (
        "import json, sys; from precis.command_line.cli import main\n"
        "for arguments in json.loads(sys.argv[1]):\n"
        "    try: main(arguments)\n"
        "    except SystemExit: pass\n"
        f"    loaded = [name for name in {libraries} if name in sys.modules]\n"
        "    if loaded: sys.exit(f'precis {arguments} imported {loaded}')"
    )
    names = {"FILE": folder / "predictions.jsonl", "FOLDER": folder, "MISSING": folder / "missing.yaml"}
    commands = [[str(names.get(word, word)) for word in words.split()] for words in commands]
    environment = os.environ | {"NLTK_DATA": "", "HOME": str(folder)}  # without WordNet, which METEOR needs NLTK for
    command = [sys.executable, "-c", script, json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, cwd=folder)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stderr.splitlines()[-1] if done.returncode else ""


@pytest.mark.parametrize("libraries, commands", FORBIDDEN.items(), ids=["all", "heavy", "compare", "corpus"])
def test_a_command_imports_only_what_it_needs(libraries, commands, folder):
    assert imported(commands, libraries, folder) == ""


ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("command, number, status, said", [
    ("corpus", signal.SIGINT, 130, "precis: interrupted\n"),
    ("fit", signal.SIGTERM, 143, ""),
])  # fmt: skip
def test_a_signal_leaves_nothing(command, number, status, said, tiny_config, source, tmp_path, precis, monkeypatch):
    run, cache = tmp_path / "run", tmp_path / "cache"
    monkeypatch.setattr(Files, "records", lambda *_: os.kill(os.getpid(), number))
    monkeypatch.setenv("PRECIS_CACHE", str(cache))
    done = precis(command, *(source if command == "corpus" else ["--config", tiny_config, "--run_dir", run]))
    assert done.status == status and done.err.endswith(said) and "Traceback" not in done.err
    assert not run.exists() and [path.name for path in cache.rglob("*")] == [LOCK]


@pytest.mark.parametrize("arguments", [["--help"], ["corpus", "--help"], ["doctor"]])  # prints with rich
def test_output_that_nobody_reads_is_no_error(arguments):
    """As of `precis --help | head -1`."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "precis.command_line.cli", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_a_disk_that_is_full_in_a_test_is_named_with_the_file(run_folder, precis, monkeypatch):
    predictions = run_folder / "predictions.jsonl"
    (run_folder / ".predictions.jsonl.rank0").symlink_to("/dev/full")  # where they are collected
    done = precis("test", "--run", run_folder, "--trust")  # a link that leads out of a run is refused otherwise
    done.refused("cannot be written (No space left on device); free some space", str(predictions))
    assert not predictions.exists() and not list(run_folder.glob(".predictions*"))
    with monkeypatch.context() as patch:
        patch.setattr(PredictionWriter, "on_test_start", Mock(side_effect=KeyboardInterrupt))  # Ctrl-C
        assert precis("test", "--run", run_folder).status == 128 + signal.SIGINT
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Lightning ignores further ones


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
    script = (
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
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == status and "Traceback" not in done.stderr and "closed" not in done.stdout
