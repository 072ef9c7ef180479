"""Help of the command, its completion in a real shell, and descriptions of corpora, shown and not obeyed."""

import inspect
import json
import os
import pty
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import write, write_lines
from rich.console import Console

import lightning_modules
from datamodules.corpora import Files, Texts
from datamodules.corpora.corpus import build_documents
from precis.command_line.describe_corpus import describe
from precis.config.command_table import COMMANDS
from precis.runs.report import example_table
from precis.sweeping.sweep_folder import print_state


@pytest.mark.integration
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_commands_and_the_options_of_every_model_and_corpus(precis, tmp_path):
    script = write(tmp_path / "precis.bash", precis("completion", "bash").succeeded().out)

    def complete(*words: str) -> list[str]:
        line = (
            f"source {script}; COMP_WORDS=(precis {' '.join(words)}); COMP_CWORD={len(words)}; "
            f"_shtab_precis precis '{words[-1]}' ''; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        )
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.split()

    assert set(complete('""')) >= set(COMMANDS)
    assert complete("sweep", "--dry") == ["--dry-run"]
    assert "--model.coverage" in complete("fit", "--model.cov")  # of PointerGenerator
    assert "--model.encoder.lora_rank" in complete("fit", "--model.encoder.lora")  # of RSTformer
    assert set(complete("fit", "--data.corpus.tr")) == {"--data.corpus.train"}


def test_help_lists_every_command_once_and_documents_the_at_most_fifteen_arguments_of_a_model(precis):
    lines = precis("--help").out.splitlines()
    groups = ("train", "use", "evaluate", "launch", "discourse", "installation", "shell")
    headings = [line for line in lines if line in groups]
    assert headings == list(dict.fromkeys(command.group for command in COMMANDS.values()))
    assert sorted(line.split()[0] for line in lines if line.startswith("  ") and line[2] != " ") == sorted(COMMANDS)
    assert precis("sweep", "--help").succeeded().out.startswith(f"example: {COMMANDS['sweep'].example}\n")
    models = {name: getattr(lightning_modules, name) for name in lightning_modules.__all__}
    assert {name for name, model in models.items() if len(inspect.signature(model).parameters) > 15} == set()
    help_text = " ".join(precis("fit", "--model.help", "RSTformer").out.split())
    assert "encoder.window WINDOW Size of the attention window in tokens, both sides together; even." in help_text


LONG = "One two three four. Five six.\n\nSeven [red]eight[/red]."
ROWS = [{"id": "a", "document": LONG, "summary": ["Ab bc.", "Cd de. Ef fg."]}]
ROWS += 2 * [{"id": "b", "document": "One two.", "summary": ["Hello."]}]


@pytest.mark.filterwarnings("ignore:Files val. left out 1")
def test_figures_and_equal_texts_of_two_splits_are_those_counted_by_hand(tmp_path, precis):
    path = write_lines(tmp_path / "x.jsonl", ROWS)
    table = build_documents(Files(val=str(path)), "val", tmp_path / "cache", on_bad_record="skip")
    description = describe("val", table, examples=1, overlaps=[])
    by_hand = {
        "document_words": [8, 2], "document_sentences": [3, 1], "parts": [2, 1], "references": [2, 1],
        "reference_words": [2, 4, 1], "reference_sentences": [1, 2, 1], "compression": [8 / 3, 2 / 1],
    }  # fmt: skip
    for name, values in by_hand.items():
        expected = {"mean": np.mean(values), "median": np.median(values), "p95": np.percentile(values, 95)}
        assert description[name] == pytest.approx(expected), name
    assert description["documents"] == 2 and [document.id for document in description["examples"]] == ["a"]
    (skipped,) = description["skipped"]
    assert skipped["where"] == f"{tmp_path}/x.jsonl:3 (id 'b')"
    without = describe("test", build_documents(Texts([("t", "Some text here.")]), "test", tmp_path), 2, [])
    assert without["compression"] is None and without["references"]["mean"] == 0
    texts = {"train": ["A lynx.", "a heron paints"], "val": ["A heron  PAINTS", "Nobody."], "test": ["nobody."] * 2}
    files = []
    for split, documents in texts.items():
        rows = [{"id": f"{split}-{n}", "document": text, "summary": "x"} for n, text in enumerate(documents)]
        files.append(f"--corpus.{split}={write_lines(tmp_path / f'{split}.jsonl', rows)}")
    arguments = ["corpus", "--corpus=Files", *files, "--examples=0"]
    assert "val val-0 equals train train-1" in precis(*arguments).out
    overlaps = {split["split"]: split["overlaps"] for split in json.loads(precis(*arguments, "--json=true").out)}
    assert [len(overlaps[split]) for split in texts] == [0, 1, 2]
    assert overlaps["test"][1] == {"id": "test-1", "other_split": "val", "other_id": "val-1"}


HOSTILE = "\x1b[31mred\x1b]0;title\x07 \x9b2J \u202egnp.exe"
SHOWN = r"\x1b[31mred\x1b]0;title\x07 \x9b2J \u202egnp.exe"
OBEYED = set("\x1b\x07\x9b\u202e")


def test_a_corpus_its_bad_records_a_report_and_a_point_of_a_sweep(tmp_path, precis, capfd):
    good = {"id": HOSTILE, "document": f"{HOSTILE} slept. It rained.", "summary": f"{HOSTILE}."}
    path = write_lines(tmp_path / "train.jsonl", [good, good, {"id": HOSTILE, "document": "", "summary": "x"}])
    skipping = precis("corpus", "--corpus=Files", f"--corpus.train={path}", "--on_bad_record=skip")
    assert skipping.status == 0 and not OBEYED & set(skipping.out + skipping.err)
    assert skipping.out.count(SHOWN) >= 5  # two bad records; id, text and reference of the good one
    stopping = precis("corpus", "--corpus=Files", f"--corpus.train={path}")
    assert stopping.status == 1 and not OBEYED & set(stopping.out + stopping.err) and "x1b[31mred" in stopping.err
    row = {"id": HOSTILE, "references": [[HOSTILE]], "summary": [HOSTILE], "words": None, "copied": None}
    Console(width=200).print(example_table(row, HOSTILE))
    print_state(HOSTILE, "failed", HOSTILE)
    out = capfd.readouterr().out
    assert not OBEYED & set(out) and out.count(SHOWN) == 4 + 2


def test_output_to_a_file_does_not_go_through_the_progress_bar_of_a_terminal():
    script = """
from datamodules.corpora.parallel import progress_bar
with progress_bar() as progress:
    for number in progress.track(range(2), description="summarizing"):
        print(f"summary {number}")
"""
    terminal, stderr = pty.openpty()
    environment = os.environ | {"TERM": "xterm"}
    process = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=stderr, env=environment)
    os.close(stderr)
    shown = os.read(terminal, 100_000).decode()
    os.close(terminal)
    assert process.stdout.decode().splitlines() == ["summary 0", "summary 1"]
    assert "summarizing" in shown and "summary 0" not in shown
