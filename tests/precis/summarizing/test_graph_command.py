import re

import numpy as np
import pytest
from conftest import write, write_lines

from datamodules.corpora.corpus import as_document
from precis.summarizing import graph as command
from precis.summarizing.picture_commands import graph
from tests.datamodules.graphs.made_up import cluster

TEXT = "An otter swims in the river. It dives.\n\nThe otter guards the mill.\n\nNobody visits the library."


@pytest.fixture
def article(tmp_path):
    path = write(tmp_path / "article.txt", TEXT)
    return path


def test_a_text_s_graph_is_printed_and_drawn(article, tmp_path, capsys):
    html = tmp_path / "graph.html"
    graph([str(article), f"--html={html}"])
    out = capsys.readouterr().out
    assert "An otter swims" in out and "strongest links to" in out and "2 (0." in out
    assert "Nobody visits the library." in html.read_text(encoding="utf-8")


def test_every_graph_that_learns_nothing(article, tmp_path, capsys):
    for arguments in (
        ["--graph=discourse", "--paragraphs.sentences=1"],
        ["--graph=none", "--paragraphs.max_paragraphs=1"],
        ["--graph=rst", "--parser=right_branching", f"--parses={tmp_path / 'parses'}"],
    ):
        graph([str(article), *arguments])
        assert "An otter swims" in capsys.readouterr().out


class Table(list):
    """Rows that have columns too."""

    def __getitem__(self, key):
        return [row[key] for row in self] if isinstance(key, str) else super().__getitem__(key)


class MadeUpData:
    """Stand-in with the attributes of a run's DataModule that the command uses."""

    def __init__(self):
        from datamodules.graphs import ParagraphRule, Similarity

        self.graph, self.paragraphs = Similarity(), ParagraphRule()

    def documents(self, split):
        made = [cluster(seed) for seed in range(4)]
        return Table({"id": one.id, "parts": one.parts, "references": [["The reference <b>."]]} for one in made)


@pytest.fixture
def run(tmp_path, monkeypatch):
    data = MadeUpData()
    monkeypatch.setattr(command, "load_run", lambda folder: type("Run", (), {"data": data}))
    table = data.documents("test")
    rows = []
    for number in (2, 0):
        size = len(as_document(table[number]).parts)
        attention = np.eye(2, size).tolist()
        row = {"id": f"cluster-{number}", "summary": ["One.", "Two."], "references": []}
        rows.append(row | {"paragraph_attention": attention})
    write_lines(tmp_path / "predictions.jsonl", rows)
    return tmp_path


def test_a_run_s_documents_with_what_its_summaries_looked_at(run, tmp_path, capsys):
    html = tmp_path / "run.html"
    graph([f"--run={run}", f"--html={html}"])
    text = html.read_text(encoding="utf-8")
    assert re.findall("<h2>(.*?)</h2>", text) == ["cluster-2", "cluster-0"]  # in the order of the predictions
    assert text.count('class="look"') == 4 and "The reference &lt;b&gt;." in text
    graph([f"--run={run}", "--id=[cluster-1]", f"--html={html}"])
    assert "cluster-1" in html.read_text() and 'class="look"' not in html.read_text()


def test_markup_in_ids_is_printed_literally(run, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")
    made = [cluster(seed) for seed in range(4)]
    rows = [{"id": f"[/red]{n}", "parts": one.parts, "references": []} for n, one in enumerate(made)]
    monkeypatch.setattr(MadeUpData, "documents", lambda self, split: Table(rows))
    graph([f"--run={run}", '--id=["[/red]1"]'])
    assert "[/red]1: graph similarity" in capsys.readouterr().out
