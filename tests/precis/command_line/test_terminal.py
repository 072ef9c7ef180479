"""What a document, an id or a label holds is shown on a terminal and not obeyed by it."""

import os
import pty
import subprocess
import sys

from conftest import write_lines
from rich.console import Console

from precis.runs.report import example_table
from precis.sweeping.sweep_folder import print_state

HOSTILE = "\x1b[31mred\x1b]0;title\x07 \x9b2J \u202egnp.exe"
SHOWN = r"\x1b[31mred\x1b]0;title\x07 \x9b2J \u202egnp.exe"
OBEYED = set("\x1b\x07\x9b\u202e")


def test_a_corpus_and_its_bad_records(tmp_path, precis):
    good = {"id": HOSTILE, "document": f"{HOSTILE} slept. It rained.", "summary": f"{HOSTILE}."}
    path = write_lines(tmp_path / "train.jsonl", [good, good, {"id": HOSTILE, "document": "", "summary": "x"}])
    skipping = precis("corpus", "--corpus=Files", f"--corpus.train={path}", "--on_bad_record=skip")
    assert skipping.status == 0 and not OBEYED & set(skipping.out + skipping.err)
    assert skipping.out.count(SHOWN) >= 5  # two bad records; id, text and reference of the good one
    stopping = precis("corpus", "--corpus=Files", f"--corpus.train={path}")
    assert stopping.status == 1 and not OBEYED & set(stopping.out + stopping.err) and "x1b[31mred" in stopping.err


def test_a_report_of_a_document_and_a_point_of_a_sweep(capsys):
    row = {"id": HOSTILE, "references": [[HOSTILE]], "summary": [HOSTILE], "words": None, "copied": None}
    Console(width=200).print(example_table(row, HOSTILE))
    print_state(HOSTILE, "failed", HOSTILE)
    out = capsys.readouterr().out
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
