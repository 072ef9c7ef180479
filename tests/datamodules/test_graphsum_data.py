"""From documents to paragraphs, graphs and batches; and what goes wrong on the way."""

import numpy as np
import pytest
from conftest import prepared

from datamodules.corpora import Files
from datamodules.corpora.corpus import as_document
from datamodules.documents import Document, UserError
from datamodules.graphs import ParagraphGraph, ParagraphRule
from datamodules.graphsum import GraphSumData, GraphTokenizer
from datamodules.text.subword_tokenizer import SMALLEST, SubwordTokenizer


class Chain(ParagraphGraph):
    """A paragraph and its neighbours; learns how many documents there are."""

    name, learned = "chain", 0

    def weights(self, paragraphs):
        size = len(paragraphs)
        return np.eye(size) + 0.5 * np.eye(size, k=1) + 0.5 * np.eye(size, k=-1)

    def fit(self, train):
        self.learned = len(list(train))

    def state(self):
        return {"documents": self.learned}

    def load_state(self, state):
        self.learned = state["documents"]


def data_of(files, folder, **changes) -> GraphSumData:
    settings = {"vocab_size": 300, "paragraphs": ParagraphRule(sentences=1), "max_tokens": 30, "max_target": 24}
    return GraphSumData(Files(**files), cache_dir=folder, **settings | {"graph": Chain(), "batch_size": 4} | changes)


def ready(files, folder, **changes) -> GraphSumData:
    return prepared(data_of(files, folder, **changes))


@pytest.fixture(scope="module")
def data(corpus_files, tmp_path_factory) -> GraphSumData:
    return ready(corpus_files, tmp_path_factory.mktemp("graphsum"))


def test_a_batch_is_paragraphs_their_graph_and_the_summary(data):
    batch = next(iter(data.test_dataloader()))
    documents, text = {row["id"]: as_document(row) for row in data.documents("test")}, data.tokenizer
    for b, name in enumerate(batch.ids):
        sentences, size = documents[name].sentences, int(batch.source_mask[b].any(-1).sum())
        assert size == len(sentences)
        for j, sentence in enumerate(sentences):
            ids = batch.source[b, j][batch.source_mask[b, j]].tolist()
            assert ids[-1] == text.paragraph and len(ids) <= 30 and text.paragraph not in ids[:-1]
            assert sentence.startswith(text.decode(ids)) and (len(ids) == 30 or text.decode(ids) == sentence)
        np.testing.assert_allclose(batch.graph[b, :size, :size], Chain().weights(sentences))
        assert not batch.graph[b, size:].any() and not batch.graph[b, :, size:].any()
        row = batch.source[b].flatten()[batch.places[b, : batch.lengths[b]]]
        assert row.equal(batch.source[b][batch.source_mask[b]])
        target = batch.target[b, : batch.target_lengths[b]].tolist()
        assert target[-1] == text.stop and batch.target_input[b, : len(target)].tolist() == [text.start, *target[:-1]]
        assert documents[name].references[0][0].startswith(text.decode(target))
        assert batch.target[b, len(target) :].eq(text.pad).all()
    assert batch.source[~batch.source_mask].eq(text.pad).all()
    assert batch.target_rows.equal((batch.target != text.pad).flatten().nonzero().squeeze(1))


def test_what_the_graph_learned_is_kept_with_the_text(data, corpus_files, tmp_path):
    state = {"documents": 26}
    assert data.tokenizer.state()["graph"] == state and GraphTokenizer.from_state(data.tokenizer.state()).graph == state
    data.tokenizer.save(tmp_path / "text")
    other = ready(corpus_files, tmp_path / "cache", graph=Chain(), tokenizer_dir=tmp_path / "text")
    assert other.graph.learned == 26 and other.tokenizer.state() == data.tokenizer.state()
    (tmp_path / "text" / "graph.json").write_text("{")
    with pytest.raises(UserError, match=r"graph\.json: damaged"):
        GraphTokenizer.load(tmp_path / "text")
    SubwordTokenizer.build(["an otter"] * 3, SMALLEST).save(tmp_path / "plain")
    with pytest.raises(UserError, match="no separators"):
        data_of(corpus_files, tmp_path, tokenizer_dir=tmp_path / "plain").load_tokenizer(tmp_path / "plain")


def test_odd_documents_have_a_defined_form_and_sentences_of_a_summary_separators(data):
    long = " ".join(["otter"] * 200)
    empty = data.encode(Document("empty", [[]], [["A summary."]]))
    assert empty["source"] == [[data.tokenizer.paragraph]] and empty["graph"] == [1.0]
    single = data.encode(Document("single", [["One sentence alone."]], []))
    assert len(single["source"]) == 1 and single["graph"] == [1.0] and single["target"] == [data.tokenizer.stop]
    same = data.encode(Document("same", [["It rains."], ["It rains."], [], ["It rains."]], [["Rain."]]))
    assert len(same["source"]) == 3 and same["source"][0] == same["source"][1]
    assert same["truncation"]["source_parts"] == [3, 4]
    assert len(data.encode(Document("long", [[long]], [[long]]))["source"][0]) == 30
    batch = data.collate([row | {"id": "x", "references": []} for row in (empty, single, same)])
    assert batch.source_mask.any(-1).sum(1).tolist() == [1, 1, 3] and batch.lengths[0] == 1
    # sentences of a summary have separators between them
    reference = ["The otter guards the mill.", "Nobody else does it."]
    target = data.encode(Document("two", [["The otter guards the mill every day."]], [reference]))["target"]
    assert data.tokenizer.decode(target[: target.index(data.tokenizer.sentence)]) == reference[0]
    assert target.count(data.tokenizer.sentence) == 1 and target[-1] == data.tokenizer.stop and len(target) <= 24


def test_wrong_arguments_and_graphs_are_refused(corpus_files, tmp_path, data, monkeypatch):
    with pytest.raises(ValueError, match="max_tokens must be at least 2, got 1"):
        data_of(corpus_files, tmp_path, max_tokens=1)
    with pytest.raises(ValueError, match="rst needs a parser"):
        data_of(corpus_files, tmp_path, graph="rst")
    with pytest.raises(ValueError, match="it needs at least 262"):
        data_of(corpus_files, tmp_path, vocab_size=261).prepare_data()
    monkeypatch.setattr(Chain, "weights", lambda self, paragraphs: [[1.0, 2.0]])
    with pytest.raises(UserError, match=r"document 'doc-\d+': its graph is 1 x 2, not"):
        data_of(corpus_files, tmp_path).prepare_data()
    row = dict(data.features("test")[0])
    for graph, message in (([1.0, 0.5], "has 2 weights, not"), ([1.5] * len(row["graph"]), r"outside \[0, 1\]")):
        with pytest.raises(UserError, match=rf"document '{row['id']}': its graph .*{message}"):
            data.collate([row | {"graph": graph}])
