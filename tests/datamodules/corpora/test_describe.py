import json
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from datamodules.corpora.describe import describe, print_description
from datamodules.corpora.files import Files
from datamodules.corpora.texts import Texts

ROWS = [
    {
        "id": "a",
        "document": "One two three four. Five six.\n\nSeven [red]eight[/red].",
        "summary": ["Ab bc.", "Cd de. Ef fg."],
    },
    {"id": "b", "document": "One two.", "summary": ["Hello."]},
    {"id": "b", "document": "One two.", "summary": ["Hello."]},
]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return Files(val=str(path))


@pytest.mark.filterwarnings("ignore:Files val. left out 1")
def test_figures_equal_those_counted_by_hand(corpus, tmp_path):
    found = describe(corpus, "val", tmp_path / "cache", examples=1)
    by_hand = {
        "document_words": [8, 2],
        "document_sentences": [3, 1],
        "parts": [2, 1],
        "references": [2, 1],
        "reference_words": [2, 4, 1],
        "reference_sentences": [1, 2, 1],
        "compression": [8 / 3, 2 / 1],
    }
    for name, values in by_hand.items():
        expected = {"mean": np.mean(values), "median": np.median(values), "p95": np.percentile(values, 95)}
        assert found[name] == pytest.approx(expected), name
    assert found["documents"] == 2 and [document.id for document in found["examples"]] == ["a"]
    assert found["skipped"] == [{"where": f"{tmp_path}/x.jsonl:3 (id 'b')", "problem": found["skipped"][0]["problem"]}]


@pytest.mark.filterwarnings("ignore:Files val. left out 1")
def test_the_table_shows_them_and_takes_text_literally(corpus, tmp_path):
    console = Console(record=True, width=120, file=StringIO())
    print_description([describe(corpus, "val", tmp_path / "cache")], console)
    printed = console.export_text()
    for piece in (
        "val",
        "5.0 / 5.0 / 7.7",
        "skipped",
        "x.jsonl:3",
        "Seven [red]eight[/red].",
        "reference: Cd de. Ef fg.",
    ):
        assert piece in printed


def test_without_references(tmp_path):
    found = describe(Texts([("t", "Some text here.")]), "test", tmp_path)
    assert found["compression"] is None and found["reference_words"] is None and found["references"]["mean"] == 0
    console = Console(record=True, file=StringIO())
    print_description([found], console)
    assert "none" in console.export_text()
