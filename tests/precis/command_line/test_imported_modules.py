"""What a command imports before it answers."""

import json
import os
import subprocess
import sys

import pytest
from conftest import write

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


def test_evaluate_imports_torch_for_a_metric_that_needs_it(folder):
    """The check above would pass if it could not see a library that was imported."""
    command = "evaluate FILE --metrics summac --summac_model model"
    assert imported([command], ("torch",), folder).endswith("imported ['torch']")


@pytest.mark.parametrize("command, meant", [
    ("evaluat", "evaluate"), ("train", "fit"), ("trian", "fit"), ("score", "evaluate"), ("sweep staus", "status"),
    ("sweep retri FOLDER", "retry"), ("baseline leed --out x.jsonl", "lead"),
])  # fmt: skip
def test_an_unknown_command_is_an_error_with_the_nearest_name(command, meant, precis):
    precis(*command.split()).failed_in_one_line(f"did you mean {meant}?", status=(1, 2))
