"""Metrics of the user's own in `precis evaluate`."""

import json

import pytest
from conftest import read_lines, write_lines

MODULE = '''
import math

class Shared:
    """The share of the summary's words that the document has."""
    signature = "exact words"

    def score(self, documents, summaries):
        shares = []
        for document, summary in zip(documents, summaries):
            words = summary.split()
            shares.append(sum(w in document.split() for w in words) / len(words) if words else math.nan)
        return shares

class Short:
    def score(self, documents, summaries):
        return [1.0]

class Words:
    def score(self, documents, summaries):
        return ["good"] * len(summaries)
'''
ROWS = [
    {"id": "a", "summary": ["the cat sat", "on mars"], "references": [["a cat"]], "document": ["the cat sat down"]},
    {"id": "b", "summary": ["dogs ran"], "references": [["dogs"]], "document": ["dogs ran away"]},
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "metrics_of_mine.py").write_text(MODULE, encoding="utf-8")
    write_lines(tmp_path / "predictions.jsonl", ROWS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_class_of_the_working_folder_is_a_metric(folder, precis):
    done = precis("evaluate", "predictions.jsonl", "--metrics", "length,metrics_of_mine.Shared", "--json").succeeded()
    rows = {row["measure"]: row for row in json.loads(done.out)["scores"]}
    assert rows["shared"]["mean"] == pytest.approx((3 / 5 + 1) / 2) and "words" in rows
    assert rows["shared"]["signature"].startswith("shared|metrics_of_mine.Shared|exact words|")
    first, second = read_lines(folder / "predictions.scores.jsonl")
    assert first["scores"]["shared"] == 0.6 and second["scores"]["shared"] == 1.0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Short", "1 scores for 2 summaries"),
        ("Words", "not numbers"),
        ("Missing", "import path of a class"),
    ],
)
def test_a_class_that_is_no_metric_is_one_line(name, message, folder, precis):
    done = precis("evaluate", "predictions.jsonl", "--metrics", f"metrics_of_mine.{name}")
    assert done.status == 1 and message in done.err and done.err.count("\n") == 1
    assert not (folder / "predictions.scores.jsonl").exists()
