"""Graphs are computed by several processes, and kept with the encoded documents."""

import pytest

from datamodules.corpora import Files
from datamodules.graphs import RST, ParagraphRule, Similarity, Topic
from datamodules.graphsum import GraphSumData
from lightning_modules.discourse_parser.right_branching import RightBranchingParser


@pytest.mark.parametrize("name", ["topic", "rst"])
def test_two_processes_give_what_one_gives_and_it_is_kept(name, corpus_files, tmp_path, monkeypatch):
    def data(folder, num_proc):
        graph = RST(RightBranchingParser(), tmp_path / "parses", ()) if name == "rst" else Topic(topics=3)
        made = GraphSumData(
            Files(**corpus_files),
            vocab_size=300,
            graph=graph,
            paragraphs=ParagraphRule(sentences=1),
            cache_dir=tmp_path / folder,
            num_proc=num_proc,
        )
        made.prepare_data()
        return made.features("val")

    one, two = data("one", 1), data("two", 2)
    assert one["graph"][:] == two["graph"][:] and one["id"][:] == two["id"][:]
    assert any(0 < value < 1 for row in one["graph"] for value in row) or name == "rst"

    def never(*_):
        raise AssertionError("the graph is there already")

    for kind in (RST, Topic, Similarity):
        monkeypatch.setattr(kind, "weights", never)
    assert data("one", 1)["graph"][:] == two["graph"][:]
