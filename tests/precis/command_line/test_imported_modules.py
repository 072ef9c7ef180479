"""What a command imports before it answers."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

LEARNING = ("torch", "pytorch_lightning", "lightning_fabric", "transformers", "torchmetrics", "datasets", "wandb")
HEAVY = (*LEARNING, "matplotlib", "scipy", "sklearn", "pandas", "nltk")
LIBRARIES = (*HEAVY, "jsonargparse", "rich", "numpy", "pyarrow", "yaml")

# The library that a command needs more than others: what it may not import otherwise.
FORBIDDEN = {
    (): LIBRARIES,
    ("--help",): LIBRARIES,
    ("--version",): LIBRARIES,
    ("--trust", "trian"): LIBRARIES,
    ("fit", "--help"): HEAVY,
    ("test", "--help"): HEAVY,
    ("fit", "--model.help"): HEAVY,
    ("fit", "--data.corpus.help"): HEAVY,
    ("fit", "--config", "MISSING"): HEAVY,
    ("corpus", "FILE"): [name for name in LEARNING if name != "datasets"],
    ("evaluate", "--metrcs", "rouge"): HEAVY,
    ("evaluate", "FILE", "--metrics", "rouge,novelty,fragments,repetition,length"): HEAVY,
    ("compare", "FILE"): [name for name in HEAVY if name != "scipy"],  # of its t-tests
    ("judge", "--modle", "NAME"): (*HEAVY, "openai"),
    ("sweep", "MISSING"): HEAVY,
    ("sweep", "cancel", "FOLDER"): HEAVY,
    ("runs", "FOLDER"): HEAVY,
    ("clean", "--cache_dir", "FOLDER"): HEAVY,
    ("workspaces", "--dry-run"): HEAVY,
    ("corpus", "--help"): HEAVY,
    ("corpus", "--corpus", "Files"): HEAVY,
    ("corpus", "--corpus", "Files", "--corpus.trian", "train.jsonl"): HEAVY,
    ("baseline", "lead", "--out", "lead.jsonl"): HEAVY,
    ("parse", "FILE"): HEAVY,
    ("score-parser", "MISSING", "--parsre", "small"): HEAVY,
    ("summarize", "--checkpoint", "FOLDER"): HEAVY,
    ("report", "FOLDER", "--exmaples", "2"): HEAVY,
    ("attention", "FOLDER", "--otu", "pictures"): HEAVY,
    ("graph", "article.txt", "--grpah", "similarity"): HEAVY,
    ("push", "FOLDER", "user/model"): HEAVY,
    ("demo", "FOLDER", "--prot", "7860"): HEAVY,
}
# Words that ROUGE stems: it leaves those of up to three letters alone.
RECORD = (
    '{"id": "a", "summary": ["the cats were sleeping"], "references": [["several cats slept"]], '
    '"document": ["The cats were sleeping on the veranda ."]}\n'
)


@pytest.fixture
def folder(tmp_path):
    """A folder with a file of predictions and a sweep of one point."""
    (tmp_path / "predictions.jsonl").write_text(RECORD, encoding="utf-8")
    (tmp_path / "points.json").write_text(
        '{"sweep": "one", "base": "one.yaml", "after": [], "points": [{"run": "a", "label": "a", "config": {}}]}',
        encoding="utf-8",
    )
    return tmp_path


@pytest.mark.parametrize("arguments", FORBIDDEN, ids=" ".join)
def test_a_command_imports_only_what_it_needs(arguments, folder):
    script = (
        "import sys; from precis.command_line.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        f"loaded = [name for name in {FORBIDDEN[arguments]} if name in sys.modules]\n"
        "sys.exit(f'imported {loaded}' if loaded else 0)"
    )
    names = {"FILE": folder / "predictions.jsonl", "FOLDER": folder, "MISSING": folder / "missing.yaml"}
    words = [str(names.get(argument, argument)).replace("FOLDER", str(folder)) for argument in arguments]
    environment = os.environ | {"NLTK_DATA": "", "HOME": str(folder)}  # without WordNet, which METEOR needs NLTK for
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=120, env=environment
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr


def test_evaluate_imports_torch_for_a_metric_that_needs_it(folder):
    """The check above would pass if it could not see a library that was imported."""
    script = (
        "import sys; from precis.command_line.cli import main; main(sys.argv[1:]); "
        "sys.exit(3 if 'torch' in sys.modules else 0)"
    )
    model = folder / "model"
    arguments = ["evaluate", folder / "predictions.jsonl", "--metrics", "summac", "--summac_model", model]
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 3, done.stderr


@pytest.mark.parametrize(
    "command, meant",
    [("evaluat", "evaluate"), ("train", "fit"), ("trian", "fit"), ("score", "evaluate"), ("sweep staus", "status"),
     ("sweep retri FOLDER", "retry"), ("baseline leed --out x.jsonl", "lead")],
)  # fmt: skip
def test_an_unknown_command_is_an_error_with_the_nearest_name(command, meant, precis):
    done = precis(*command.split())
    assert done.status in (1, 2) and f"did you mean {meant}?" in done.err and done.err.count("\n") == 1
