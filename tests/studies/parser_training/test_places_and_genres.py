"""Parseval by place and genre, over a chart parser with random weights."""

import random
from dataclasses import replace

import pytest
import torch
from conftest import write_lines

from datamodules.discourse.relations import GUM
from datamodules.discourse.trees import Span, Tree
from experiments.studies.parser_training.places_and_genres import PLACES, by_place, edu_units, main
from lightning_modules.discourse_parser.parser import DiscourseParser
from precis.discourse.score_parser import gold_documents

LINES = ["The otter slept", "because it rained.", "A heron left", "when it was late.", "It sang.", "Nobody heard it."]


def nested(start: int, end: int, rng: random.Random) -> list | int:
    """A random tree in fine relations, binary but for some multinuclear nodes of three children."""
    if start == end:
        return start
    if end - start >= 2 and rng.random() < 0.2:
        return ["NN", "joint-list", start, nested(start + 1, end - 1, rng), end]
    split = rng.randrange(start, end)
    label = rng.choice([["NS", "causal-cause"], ["SN", "context-background"], ["NN", "joint-list"]])
    return [*label, nested(start, split, rng), nested(split + 1, end, rng)]


def record(number: int) -> dict:
    """A document of two paragraphs, four sentences and six EDUs; the last one has a single EDU."""
    lines = LINES if number < 5 else LINES[:1]
    edus, text = [], ""
    for line in lines:
        edus.append([len(text), len(text) + len(line)])
        text += line + ("\n" if line == "when it was late." else " ")
    if len(lines) == 1:
        sentences = paragraphs = [edus[0]]
    else:
        sentences = [[edus[0][0], edus[1][1]], [edus[2][0], edus[3][1]], edus[4], edus[5]]
        paragraphs = [[edus[0][0], edus[3][1]], [edus[4][0], edus[5][1]]]
    tree = nested(0, len(lines) - 1, random.Random(number))
    genre = "news" if number % 2 else "fiction"
    return {
        "id": f"d{number}", "text": text, "edus": edus, "sentences": sentences, "paragraphs": paragraphs,
        "tree": tree, "genre": genre,
    }  # fmt: skip


@pytest.fixture(scope="module")
def treebank(tmp_path_factory) -> str:
    return str(write_lines(tmp_path_factory.mktemp("treebank") / "made_up.jsonl", [record(i) for i in range(6)]))


@pytest.fixture(scope="module")
def parser() -> DiscourseParser:
    torch.manual_seed(0)
    return DiscourseParser(members=2, hidden_size=8, fit_size=4, dropout=0.0).eval()


def test_places_by_hand(treebank):
    (document, *_) = gold_documents(treebank, GUM.coarse)
    assert edu_units(document) == ([1, 1, 2, 2, 3, 4], [1, 1, 1, 1, 2, 2])
    spans = [
        Span(0, 3, 5, "NN", "joint"), Span(0, 1, 3, "NS", "causal"), Span(0, 0, 1, "NS", "causal"),
        Span(2, 2, 3, "NS", "mode"), Span(4, 4, 5, "NS", "causal"),
    ]  # fmt: skip
    gold = Tree.from_spans(spans, 6)
    other = Tree.from_spans([*spans[:2], *(s._replace(nuclearity="SN", relation="mode") for s in spans[2:])], 6)
    table = by_place([other], [replace(document, tree=gold)], 10)
    assert {place: row["nodes"] for place, row in table.items()} == dict(zip(PLACES, (2, 2, 1)))
    values = {place: [row[level].mean for level in "SNRF"] for place, row in table.items()}
    assert values == {
        PLACES[0]: [100, 0, 50, 0], PLACES[1]: [100, 50, 50, 50], PLACES[2]: [100, 100, 100, 100]
    }  # fmt: skip


def test_tables_are_printed(treebank, capsys):
    main([treebank, "--parser", "right_branching", "--resamples", "20"])
    printed = capsys.readouterr().out
    assert "| within sentences | right_branching | " in printed and "| fiction | right-branching | 3 | " in printed
