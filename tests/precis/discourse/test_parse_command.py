"""`precis parse`: from a corpus to a cache, and one document shown."""

import io
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import write_lines
from made_up_parses import made_up_document, made_up_parse
from PIL import Image

from datamodules.discourse.cache import ParseCache
from datamodules.discourse.parses import ParseRequest
from datamodules.documents import UserError
from lightning_modules.discourse_parser.right_branching import RightBranchingParser
from precis.discourse import parse as command
from precis.discourse.parse import heat_map, summed

ROOT = Path(__file__).parents[3]
OURS = ("--parser", "right_branching", "--accelerator", "cpu")


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(5):
        text = f"Otter {number} swims every day, but the heron {number} never does. It rains.\n\nNobody minds."
        (folder / f"{number}.txt").write_text(text)
    (folder / "empty.txt").write_text(" \n")
    return folder


def test_a_corpus_is_parsed_once(precis, tmp_path, texts):
    out = tmp_path / "parses"
    done = precis("parse", texts, "--out", out, *OURS).succeeded()
    assert "parser: right_branching (named by --parser)" in done.err
    assert "5 documents parsed, 0 were parsed before" in done.out and "20 EDUs" in done.out
    assert "1 records left out: text 'empty.txt' (the document is empty)" in done.out
    assert "5 parses in the cache" in done.out
    assert "0 documents parsed, 5 were parsed before" in precis("parse", texts, "--out", out, *OURS).succeeded().out
    other = precis("parse", texts, "--out", out, *OURS, "--rows", "nucleus", "--band", 2)
    assert "5 documents parsed, 0 were parsed before" in other.out and "10 parses in the cache" in other.out
    cache = ParseCache(out)
    assert len(cache) == 10 and cache.missing(cache) == []


def test_a_dry_run_estimates_what_is_missing_and_writes_nothing(precis, tmp_path, texts):
    out = tmp_path / "parses"
    done = precis("parse", texts, "--out", out, *OURS, "--batch_size", 1, "--dry-run").succeeded()
    assert done.out.startswith("5 documents, 75 tokens: about 0.00 hours of one processor")
    assert "judged by the 3 longest documents" in done.out and not out.exists()
    precis("parse", texts, "--out", out, *OURS).succeeded()
    assert precis("parse", texts, "--out", out, *OURS, "--dry-run").out.endswith("no document is missing\n")


def test_corpora_files_and_shards(precis, tmp_path, corpus_files):
    out = tmp_path / "parses"
    for shard, parsed in (("1/3", 3), ("3/3", 2), ("3/3", 0)):
        done = precis("parse", corpus_files["val"], "--out", out, *OURS, "--shard", shard)
        assert done.status == 0 and f": {parsed} documents parsed" in done.out, done
    done = precis("parse", corpus_files["val"], "--out", out, *OURS)
    assert ": 2 documents parsed, 5 were parsed before" in done.out
    named = ["--corpus", "Files", *(f"--corpus.{split}={path}" for split, path in corpus_files.items())]
    done = precis("parse", *named, "--split", "train", "--out", out, *OURS)
    assert ": 26 documents parsed" in done.out
    done = precis("parse", *named, "--out", out, *OURS)
    assert ": 7 documents parsed, 33 were parsed before" in done.out


@pytest.mark.integration
def test_two_processes_share_the_work(tmp_path, texts):
    out = tmp_path / "parses"
    command_line = [sys.executable, "-m", "precis.command_line.cli", "parse", texts]
    command_line += ["--out", out, *OURS, "--devices", "2"]
    done = subprocess.run(command_line, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0 and done.stdout.count("5 documents parsed, 0 were parsed before") == 1, done.stderr
    ranks = sorted(path.name.split("-")[1] for path in out.glob("*.safetensors"))
    assert ranks == ["00000", "00001"] and len(ParseCache(out)) == 5


class Interrupting(RightBranchingParser):
    def predict_step(self, batch, batch_idx):
        if batch_idx == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return super().predict_step(batch, batch_idx)


@pytest.mark.integration
def test_ctrl_c_leaves_what_is_done_and_the_same_command_continues(precis, tmp_path, texts, monkeypatch):
    out, before = tmp_path / "parses", signal.getsignal(signal.SIGINT)
    monkeypatch.setattr("lightning_modules.discourse_parser.right_branching.RightBranchingParser", Interrupting)
    try:
        done = precis("parse", texts, "--out", out, *OURS, "--batch_size", 1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.status == 130 and "2 documents parsed" in done.out, done
    assert "3 documents left; the same command continues" in done.out
    monkeypatch.undo()
    assert "3 documents parsed, 2 were parsed before" in precis("parse", texts, "--out", out, *OURS).succeeded().out


def test_a_document_of_100_000_tokens_one_of_one_edu_and_odd_ones(precis, tmp_path):
    long = " ".join(f"The otter {number} swims across the lake; nobody sees it now." for number in range(8400))
    odd = "\ufeff🏳️‍🌈 𝔴hat?\u2028שלום — naïve cafe\u0301, \u200bbut zero\u00a0width\ufffd."
    rows = [{"id": "long", "document": long}, {"id": "one", "document": "Word"}, {"id": "odd", "document": odd}]
    path = write_lines(tmp_path / "corpus.jsonl", [*rows, {"id": "none", "document": ""}])
    arguments = ("parse", path, "--corpus.summary=null", "--out", tmp_path / "parses", *OURS, "--band", 8)
    done = precis(*arguments)
    assert done.status == 0 and "3 documents parsed" in done.out, done
    assert "1 records left out" in done.out and f"{path}:4" in done.out


@pytest.mark.parametrize("arguments, problem", [
    (["--out", "OUT", "--parser", "nobody"], "no parser 'nobody': there are default, mpnet, small"),
    ([*OURS], "needs --out"),
    (["--out", "OUT", *OURS, "--shard", "4/3"], "--shard 4/3: give K/N"),
    (["--out", "OUT", *OURS, "--svg", "OUT"], "pass --show"),
    (["--out", "TEXT", *OURS], "a file; name a folder"),
    (["--show", *OURS], "there are 6; name one file"),
])  # fmt: skip
def test_wrong_arguments_in_one_line(precis, tmp_path, texts, arguments, problem):
    (texts / "empty.txt").write_text("Not empty.")
    names = {"OUT": tmp_path / "out", "TEXT": texts / "1.txt"}
    precis("parse", texts, *(names.get(word, word) for word in arguments)).failed_in_one_line(problem)


def test_tasks_of_a_slurm_array(monkeypatch):
    assert command.task_of(None) == (1, 1) and command.task_of("2/8") == (2, 8)
    for name, value in {"ID": "7", "MIN": "5", "MAX": "8", "COUNT": "4"}.items():
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", value)
    assert command.task_of(None) == (3, 4) and command.task_of("1/1") == (1, 1)
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "3")
    with pytest.raises(UserError, match="has gaps; pass --shard"):
        command.task_of(None)


def test_show_draws_a_tree_an_image_and_a_heat_map(precis, tmp_path, texts, monkeypatch):
    svg, png = tmp_path / "tree.svg", tmp_path / "map.png"
    done = precis("parse", "--show", *OURS, "--svg", svg, "--heat_map", png, texts / "1.txt").succeeded()
    for part in ("Otter 1 swims every day,", "but the heron 1 never does.", "It rains.", "elaboration", "NS"):
        assert part in done.out
    assert f"{svg}: the tree" in done.err and f"{png}: a heat map" in done.err
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    assert precis("parse", "--show", texts / "1.txt", *OURS).out == done.out  # as the README has it, the text first
    assert Image.open(png).format == "PNG" and min(Image.open(png).size) > 200
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO("Sí.".encode())))
    assert "Sí." in precis("parse", "--show", *OURS).out
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b" ")))
    precis("parse", "--show", *OURS).refused("there is no text in it")


def test_the_heat_map_shows_sums_over_relations():
    found = made_up_parse(ParseRequest.of(made_up_document(3, sentences=5)), half_width=3)
    shown, dense = summed(found), torch.full((10, 10), float("nan"))
    for i in range(10):
        for j in range(max(0, i - 3), min(10, i + 4)):
            dense[i, j] = found.band(3)[i, j - i + 3].sum()
    torch.testing.assert_close(shown, dense, equal_nan=True)
    assert heat_map(found).axes[0].get_title() == "doc-3: 10 EDUs"
