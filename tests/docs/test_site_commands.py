"""Commands of the pages are run as they are printed, on tiny data; for each of the others there is a reason."""

import gzip
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from conftest import write, write_lines
from run_folders import prediction, write_run, write_sweep_folder
from tiny_models import make_chat_model, make_summarizer

from tests.made_up_treebank import made_up_treebank
from tests.test_documentation import EVERY, ROOT, blocks

pytestmark = pytest.mark.integration

# Run with a few small sizes more than are printed: two steps of a model of four units.
SHORTENED = (
    "precis fit --config experiments/configs/pointer_generator/docstrings.yaml --run_dir runs/mine --data.corpus Files "
    "--data.corpus.train train.jsonl --data.corpus.val val.jsonl --data.corpus.test test.jsonl",
)
SMALL = "--model.embedding.size 4 --model.hidden_size 4 --trainer.max_steps 2 --trainer.accelerator cpu --wandb off"
# Why others are only parsed (and their configs built, their sweeps composed), by a pattern.
NOT_EXECUTED = {
    "precis fit (?!--run runs/first)": "trains for minutes to days; test_configs builds the model of each config",
    r"precis (test|compare) .*\.\./runs/": "test_bag_of_words runs the tutorial on a tiny corpus",
    "precis test --run runs/(pegasus|modules|rstformer)": "the command of other runs, which are tested above",
    "python tests/hardening/strategies": "trains for a minute what test_ddp trains",
    "precis sweep .*yaml": "trains, or checks tens of points for a minute; tests/precis/sweeping has small ones",
    r"precis sweep (logs|retry)|srun|sbatch": "needs SLURM or a sweep that ran, see tests/cluster",
    r"precis (sweep|compare) .*runs/pointer_generator_search": "needs a search that ran; tests of searches run one",
    "precis (corpus --corpus Docstrings|parse Docstrings)": "reads many packages for a minute",
    "precis baseline zero_shot --run .*--encoder minilm": "needs the pretrained encoder of the extra minilm",
    "precis (baseline hf|summarize) --checkpoint (facebook|Qwen)": "downloads a large model; tiny ones are run above",
    "precis (baseline chat .*--base_url|judge)": "asks a server; tests of baselines and of the judge start their own",
    r"precis import|precis (test|summarize) .*_cnndm\b": "reads published checkpoints, see tests/precis/sharing",
    "precis corpus --corpus Hub": "downloads a dataset; test_hub reads local ones",
    "precis clean .*--delete": "deletes caches; the same without --delete is run above",
    "precis compare .*--latex": "as above, with tables; test_compare_outputs writes them",
    "precis (push|workspaces --entity)": "sends to a server; their tests replace it",
    "precis demo": "serves until Ctrl-C; test_playground opens the page in a browser",
    "precis attention runs/NAME|precis graph --run runs/NAME": "as above, of other models than the runs/NAME here",
    "precis score-parser TREEBANK": "as above",
    r"(precis|python -m experiments).*\b(gcdt|csl_zh)\b": "reads data in Chinese; their tests train tiny models",
    "precis completion": "writes to the home folder; test_help_and_descriptions sources the script in bash",
    r"(make|pip|source|cd|cat|wandb|python -m (benchmarks|pytest))\b": "sets up or measures; CI runs make",
}

FIRST = ("--help", "fit", "test", "validate", "predict", "baseline", "evaluate")  # others read what these write
EXECUTED = [
    line for line in EVERY if line not in SHORTENED and not any(re.match(pattern, line) for pattern in NOT_EXECUTED)
]


def place(line: str) -> int:
    """A number to sort by; a pretrained model is scored after its summaries are written."""
    command = line.split()[1]
    return len(FIRST) if command not in FIRST or "test --checkpoint" in line else FIRST.index(command)


@pytest.fixture
def folder(tmp_path, trained, corpus_files, monkeypatch):
    text = "The harbour was closed on Monday because of a storm. Ships waited outside.\n\nFerries did not run either.\n"
    write(tmp_path / "article.txt", text)
    write(tmp_path / "article_zh.txt", "今天下雨。我们在家。")
    write_lines(tmp_path / "articles.jsonl", [{"body": text}, {"body": 5}])
    (records,) = blocks(ROOT / "docs" / "own_data.md", "json")
    for name, day in {"train": "Monday", "val": "Friday", "test": "Sunday"}.items():
        write(tmp_path / f"{name}.jsonl", records.replace("Monday", day))
    for name, line in {"theirs": "the harbour is closed", "gold": "the harbour was closed", "in": text}.items():
        write(tmp_path / f"{name}.txt", " ".join(line.split()) + "\n")
    russian = {"id": "1", "document": "Гавань закрыли в понедельник. Корабли ждали.", "summary": "Гавань закрыли."}
    write_lines(tmp_path / "news_ru.jsonl", [russian])
    for name in ("first", "NAME"):
        shutil.copytree(trained, tmp_path / "runs" / name)
    for name, model in {"modules": "graphsum", "rstformer": "rstformer", "bertsum_scitldr": "bertsum"}.items():
        write_run(tmp_path / "runs" / name, model, corpus_files)
    make_summarizer("bart", tmp_path / "models" / "bart", [text], window=64, max_length=12)
    make_chat_model(tmp_path / "models" / "chat", [text], window=1024)
    write_sweeps(tmp_path / "runs")
    write_parser(tmp_path)
    for name, summary in {"first": "a storm", "second": "the harbour", "third": "the harbour was closed"}.items():
        rows = [{"id": n, "summary": summary, "references": "the harbour was closed"} for n in range(3)]
        write_lines(tmp_path / f"{name}.jsonl", rows)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_sweeps(runs: Path) -> None:
    """Write two runs to compare, and the folders of two sweeps whose first two points have predictions."""
    scores = {"rouge1": 50.0, "rouge2": 20.0, "rougeLsum": 45.0}
    rows = [prediction(number, f"reference {number % 2}", scores) for number in range(4)]
    for sweep, labels in {"pointer_generator_rows": ("attention", "pointer"), "cluster_check": ("a=1", "a=2")}.items():
        points = {f"{label} seed=1": rows for label in labels}
        folder = write_sweep_folder(runs / sweep, points, missing=f"{labels[1]} seed=2")
        described = json.loads((folder / "points.json").read_text(encoding="utf-8"))
        write(folder / "points.json", json.dumps({"sweep": sweep, "base": "tiny.yaml", **described}))
    for name, label in {"ONE": "attention-seed-1", "OTHER": "pointer-seed-1"}.items():
        shutil.copytree(runs / "pointer_generator_rows" / label, runs / name)


def write_parser(folder: Path) -> None:
    from precis.config.parsers import load_parser

    for name in ("runs/parser", "gum"):
        (folder / name).mkdir()
    load_parser("small").save(folder / "runs" / "parser")
    plain = made_up_treebank(folder / "trees.jsonl", documents=2)
    (folder / "gum" / "val.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))


@pytest.mark.timeout(600)
def test_commands_run_as_they_are_printed(folder, precis):
    assert len(EXECUTED) > 40  # and no reason is out of date
    assert [pattern for pattern in NOT_EXECUTED if not any(re.match(pattern, line) for line in EVERY)] == []
    lines = [*sorted(EXECUTED, key=place), *(f"{line} {SMALL}" for line in SHORTENED)]
    done = {line: precis(*shlex.split(line)[1:]) for line in lines}
    assert {line: each.err for line, each in done.items() if each.status} == {}
    written = "page.html rows.html graphs.html article.html article.png tree.svg ldd.png lead.jsonl systems.html"
    for name in f"{written} first-model/README.md led/config.json pictures/page.html scores/scores.md".split():
        assert (folder / name).stat().st_size, name


def test_the_code_of_the_readme_runs_and_code_that_pages_of_papers_name_exists(folder, capsys):
    (code,) = blocks(ROOT / "README.md", "python")
    exec(code, {})
    assert capsys.readouterr().out.strip()
    for page in sorted((ROOT / "docs" / "papers").glob("*.md")):
        for names, path in re.findall(r"((?:`\w+`[^`\n]*?)+)\s(?:in|of)\s+`([\w/]+\.py)`", page.read_text()):
            code = (ROOT / path).read_text()
            for name in re.findall(r"`(\w+)`", names):
                assert re.search(rf"(?:def|class) {name}\b", code), f"{page.name}: {path} has no {name}"
