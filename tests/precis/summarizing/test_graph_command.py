import re
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import write, write_lines
from datasets import Dataset

from datamodules.corpora.corpus import as_document
from datamodules.graphs import ParagraphRule, Similarity
from precis.summarizing import graph_drawing as command
from precis.summarizing.picture_commands import graph
from tests.datamodules.graphs.made_up import cluster

TEXT = "An otter swims in the river. It dives.\n\nThe otter guards the mill.\n\nNobody visits the library."


@pytest.fixture
def article(tmp_path):
    return write(tmp_path / "article.txt", TEXT)


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


def test_topics_need_a_run(article, precis):
    precis("graph", article, "--graph=topic").failed_in_one_line("topics are learned from a corpus; give the --run")


def run_of(folder, monkeypatch, prefix="cluster-"):
    """Return a run folder with predictions of two of its documents, which are made-up clusters."""
    made = [cluster(seed).parts for seed in range(4)]
    rows = [{"id": f"{prefix}{number}", "parts": parts} for number, parts in enumerate(made)]
    table = Dataset.from_list([row | {"references": [["The reference <b>."]]} for row in rows])
    data = SimpleNamespace(graph=Similarity(), paragraphs=ParagraphRule(), documents=lambda split: table)
    monkeypatch.setattr(command, "load_run", lambda folder: SimpleNamespace(data=data))
    rows = []
    for number in (2, 0):
        attention = np.eye(2, len(as_document(table[number]).parts)).tolist()
        row = {"id": f"{prefix}{number}", "summary": ["One.", "Two."], "references": []}
        rows.append(row | {"paragraph_attention": attention})
    write_lines(folder / "predictions.jsonl", rows)
    return folder


def test_a_run_s_documents_with_what_its_summaries_looked_at(tmp_path, monkeypatch, capsys):
    html, run = tmp_path / "run.html", run_of(tmp_path, monkeypatch)
    graph([f"--run={run}", f"--html={html}"])
    text = html.read_text(encoding="utf-8")
    assert re.findall("<h2>(.*?)</h2>", text) == ["cluster-2", "cluster-0"]  # in the order of the predictions
    assert text.count('class="look"') == 4 and "The reference &lt;b&gt;." in text
    graph([f"--run={run}", "--id=[cluster-1]", f"--html={html}"])
    assert "cluster-1" in html.read_text() and 'class="look"' not in html.read_text()


def test_markup_in_ids_is_printed_literally(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")
    graph([f"--run={run_of(tmp_path, monkeypatch, '[/red]')}", '--id=["[/red]1"]'])
    assert "[/red]1: graph similarity" in capsys.readouterr().out
