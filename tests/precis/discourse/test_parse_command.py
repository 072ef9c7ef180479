import io
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import write, write_lines
from hypothesis import given, settings
from made_up_parses import made_up_document, made_up_parse
from PIL import Image
from pytorch_lightning.strategies import SingleDeviceStrategy
from quiet_trainer import quiet_trainer

from callbacks.previews import draw_attention
from datamodules.corpora import parallel
from datamodules.discourse.cache import ParseCache
from datamodules.discourse.parses import ParseRequest
from datamodules.discourse.trees import Span, Tree
from datamodules.documents import UserError
from datamodules.parsing import ParsingData
from lightning_modules.discourse_parser.right_branching import RightBranchingParser
from precis.discourse import parse as command
from precis.discourse.parse import ParseWriter, heat_map, nucleus_probabilities
from precis.discourse.tree_drawing import draw_svg, draw_text
from tests.datamodules.discourse.random_trees import documents

ROOT = Path(__file__).parents[3]
OURS = ("--parser", "right_branching", "--accelerator", "cpu")


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(5):
        text = f"Otter {number} swims every day, but the heron {number} never does. It rains.\n\nNobody minds."
        write(folder / f"{number}.txt", text)
    write(folder / "empty.txt", " \n")
    return folder


def test_a_corpus_is_parsed_once(precis, tmp_path, texts):
    out = tmp_path / "parses"
    command_line = ["parse", texts, "--out", out, *OURS]
    write(texts / "zh.txt", "今天天气很好。")
    done = precis(*command_line, "--batch_size", 1, "--dry-run").succeeded()
    (texts / "zh.txt").unlink()
    assert done.out.startswith("6 documents, 82 tokens: about 0.00 hours of one processor")
    assert "estimated from the 3 longest documents" in done.out and not out.exists()
    done = precis(*command_line).succeeded()
    assert "parser: right_branching (named by --parser)" in done.err
    assert "5 documents parsed, 0 were parsed before" in done.out and "20 EDUs" in done.out
    assert "1 record left out: text 'empty.txt' (the document is empty)" in done.out
    assert precis(*command_line, "--dry-run").out.endswith("no document is missing\n")
    assert "0 documents parsed, 5 were parsed before" in precis(*command_line).succeeded().out
    other = precis(*command_line, "--rows", "nucleus", "--band", 2)
    assert "5 documents parsed, 0 were parsed before" in other.out and "10 parses in the cache" in other.out
    cache = ParseCache(out)
    assert len(cache) == 10 and cache.missing(cache) == []


def test_corpora_files_shards_and_texts_of_any_length(precis, tmp_path, corpus_files):
    options = ["--out", tmp_path / "parses", *OURS]
    named = ["--corpus", "Files", *(f"--corpus.{split}={path}" for split, path in corpus_files.items())]
    for arguments, counts in (
        ([corpus_files["val"], "--shard", "1/3"], "3 documents parsed"),
        ([corpus_files["val"], "--shard", "3/3"], "2 documents parsed"),
        ([corpus_files["val"], "--shard", "3/3"], "0 documents parsed"),
        ([corpus_files["val"]], "2 documents parsed, 5 were parsed before"),
        ([*named, "--split", "train"], "26 documents parsed"),
        (named, "7 documents parsed, 33 were parsed before"),
    ):
        assert f": {counts}" in precis("parse", *arguments, *options).succeeded().out
    long = " ".join(f"The otter {number} swims across the lake; nobody sees it now." for number in range(8400))
    odd = "\ufeff🏳️‍🌈 𝔴hat?\u2028שלום — naïve cafe\u0301, \u200bbut zero\u00a0width\ufffd."
    rows = [{"id": id, "document": text} for id, text in (("long", long), ("one", "Word"), ("odd", odd), ("none", ""))]
    path = write_lines(tmp_path / "corpus.jsonl", rows)
    done = precis("parse", path, "--corpus.summary=null", *options, "--band", 8).succeeded()
    assert "3 documents parsed" in done.out and "1 record left out" in done.out and f"{path}:4" in done.out


@pytest.mark.integration
def test_two_processes_share_the_work(tmp_path, texts):
    out = tmp_path / "parses"
    command_line = [sys.executable, "-m", "precis.command_line.cli", "parse", texts, "--out", out, *OURS]
    done = subprocess.run([*command_line, "--devices", "2"], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0 and done.stdout.count("5 documents parsed, 0 were parsed before") == 1, done.stderr
    ranks = sorted(path.name.split("-")[1] for path in out.glob("*.safetensors"))
    assert ranks == ["00000", "00001"] and len(ParseCache(out)) == 5


class Interrupting(RightBranchingParser):
    def predict_step(self, batch, batch_idx):
        if batch_idx == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return super().predict_step(batch, batch_idx)


def test_ctrl_c_leaves_what_is_done_and_the_same_command_continues(precis, tmp_path, texts, monkeypatch):
    command_line, before = ["parse", texts, "--out", tmp_path / "parses", *OURS], signal.getsignal(signal.SIGINT)
    monkeypatch.setattr("lightning_modules.discourse_parser.right_branching.RightBranchingParser", Interrupting)
    try:
        done = precis(*command_line, "--batch_size", 1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.status == 130 and "2 documents parsed" in done.out, done
    assert "3 documents left; the same command continues" in done.out
    monkeypatch.undo()
    assert "3 documents parsed, 2 were parsed before" in precis(*command_line).succeeded().out


DOCUMENTS = [made_up_document(number) for number in range(9)]


def write_parses(folder: Path, **limits) -> None:
    cache, parser = ParseCache(folder), RightBranchingParser()
    data = ParsingData(DOCUMENTS, cache, parser, batch_size=2)
    trainer = quiet_trainer(ParseWriter(cache, **limits), devices=1)
    trainer.predict(parser, datamodule=data, return_predictions=False)
    assert data.missing() == []


def test_the_writer_writes_all_and_counts_tokens(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(parallel, "LINE_INTERVAL", 0.0)
    write_parses(tmp_path)
    cache = ParseCache(tmp_path)
    assert len(cache) == 9 and cache.missing(cache) == []
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("parsing tokens: ")]
    tokens = sum(len(document.text.split()) for document in DOCUMENTS)
    assert len(lines) == 5 and lines[-1] == f"parsing tokens: {tokens} of {tokens}, 0:00:00 left"
    assert all(line.endswith(":00:01 left") for line in lines[1:-1])


def test_ranks_wait_for_each_other_once_they_have_written_shards_as_large_as_asked_for(tmp_path, monkeypatch):
    waited, count = [], lambda strategy, name=None: waited.append((name, len(ParseCache(tmp_path))))
    monkeypatch.setattr(SingleDeviceStrategy, "barrier", count)
    write_parses(tmp_path, documents=4)
    assert ("parses", 9) in waited and len(list(tmp_path.glob("*.safetensors"))) == 3


@pytest.mark.parametrize("arguments, problem", [
    ([*OURS], "needs --out"),
    (["--out", "OUT", *OURS, "--shard", "4/3"], "--shard 4/3: give K/N"),
    (["--out", "TEXT", *OURS], "a file; name a folder"),
    (["--out", "OUT", *OURS, "--corpus", "Docstrings"], "texts: cannot be combined with a corpus"),
    ([*OURS, "--corpus", "Docstrings", "--show"], "--show: cannot be combined with a corpus"),
])  # fmt: skip
def test_wrong_arguments_in_one_line(precis, tmp_path, texts, arguments, problem):
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
    svg, png, formula = tmp_path / "new/tree.svg", tmp_path / "map/map.png", "price $\\frac{1$ of $x_"  # no formula
    text = (texts / "1.txt").rename(texts / f"{formula}.txt")
    done = precis("parse", "--show", *OURS, "--svg", svg, "--heat_map", png, text).succeeded()
    for part in ("Otter 1 swims every day,", "but the heron 1 never does.", "It rains.", "elaboration", "NS"):
        assert part in done.out
    assert f"{svg}: the tree" in done.err and f"{png}: a heat map" in done.err
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    assert Image.open(png).format == "PNG" and min(Image.open(png).size) > 200
    assert precis("parse", "--show", text, *OURS).out == done.out  # as the README has it, the text first
    draw_attention(png, [formula, "b"], [formula], np.ones((1, 2)) / 2, np.ones(2))
    assert Image.open(png).format == "PNG"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO("Sí.".encode())))
    assert "Sí." in precis("parse", "--show", *OURS).out
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b" ")))
    precis("parse", "--show", *OURS).refused("there is no text in it")
    blank = write_lines(svg.parent / "blank" / "a.txt", [])
    precis("parse", "--show", *OURS, blank.parent).refused(f"{blank}: there is no text in it")

    parse = made_up_parse(ParseRequest.of(made_up_document(3, sentences=5)), half_width=3)
    dense = torch.full((10, 10), float("nan"))  # sums over relations
    for i in range(10):
        for j in range(max(0, i - 3), min(10, i + 4)):
            dense[i, j] = parse.band(3)[i, j - i + 3].sum()
    torch.testing.assert_close(nucleus_probabilities(parse), dense, equal_nan=True)
    assert heat_map(parse).axes[0].get_title() == "doc-3: 10 EDUs"


TREE = Tree.from_nested(["NS", "cause", ["NN", "list", 0, 1, 2], 3])
TEXTS = ["It <b>rained</b> & rained,", 'it "poured",', "it\nsnowed", "so we left."]
SVG = "{http://www.w3.org/2000/svg}"


def test_text_by_hand_and_deep_trees():
    assert draw_text(TREE, TEXTS, width=40).splitlines() == [
        "cause (NS) 1–4",
        "├─ N list (NNN) 1–3",
        "│  ├─ N [1] It <b>rained</b> & rained,",
        '│  ├─ N [2] it "poured",',
        "│  └─ N [3] it snowed",
        "└─ S [4] so we left.",
    ]
    assert draw_text(Tree(1), ["alone"]) == "[1] alone\n"
    texts = ["null \x00 and escape \x1b[31m", "lone \ud800 漢字 🙂", "می\u200cخواهم (a).", " "]
    drawn = " ".join("".join(ElementTree.fromstring(draw_svg(TREE, texts).encode()).itertext()).split())
    assert "null and escape [31m" in drawn and "3 \u2068می\u200cخواهم (a)." in drawn  # a line of its own direction
    assert "\x1b" not in draw_text(TREE, texts) and "🙂" in draw_text(TREE, texts)
    wide, narrow = (ElementTree.fromstring(draw_svg(Tree(1), [text * 30])) for text in ("漢", "ab"))
    assert wide.get("width") == narrow.get("width")  # a Chinese character is as wide as two letters
    size = 1200
    tree = Tree.from_spans([Span(i, i, size - 1, "SN", "x" * 10) for i in range(size - 1)], size)
    texts = ["text " * 50] * size
    lines = draw_text(tree, texts, width=80).splitlines()
    assert max(map(len, lines)) == 80 and "1199… " in lines[-1] and "[1200] text" in lines[-1]
    image = draw_svg(tree, texts)
    root = ElementTree.fromstring(image)
    assert float(root.get("width")) < 2000 and float(root.get("height")) < 27 * size + 100 and len(image) < 1000 * size


def texts_of(root) -> tuple[list, list]:
    """The EDUs of a picture, and the labels of its nodes without those of the legend."""
    texts = list(root.iter(f"{SVG}text"))
    return [text for text in texts if text.get("class") == "edu"], [text for text in texts if not text.get("class")][2:]


@given(documents())
@settings(max_examples=30)
def test_every_node_and_edu_is_drawn(document):
    tree, texts = document.tree, document.edu_texts
    lines = draw_text(tree, texts, width=200).splitlines()
    assert len(lines) == tree.size + len(tree.nodes)
    for edu, text in enumerate(texts):
        assert any(line.endswith(f"[{edu + 1}] {text}") for line in lines)
    root = ElementTree.fromstring(draw_svg(tree, texts))
    edus, labels = texts_of(root)
    assert [element.find(f"{SVG}title").text for element in edus] == texts
    lines = [path for path in root.iter(f"{SVG}path") if path.get("class") in ("N", "S")]
    assert len(lines) == 2 + sum(len(node.starts) for node in tree.nodes)  # two in the legend
    assert len({label.get("y") for label in labels}) == len(labels) == len(tree.nodes)  # each on a line of its own
    texts = [f"{text} {'and a sentence that goes on ' * 3}" for text in texts]
    edus, _ = texts_of(ElementTree.fromstring(draw_svg(tree, texts, letters=30, wrap=True, tree_width=160)))
    for number, (element, text) in enumerate(zip(edus, texts, strict=True), start=1):
        lines = [span.text for span in element.iter(f"{SVG}tspan")]
        assert " ".join(lines).split() == [str(number), *text.split()] and all(len(line) <= 30 for line in lines)
