"""Graphs over paragraphs: own ones, by name, from files, by discourse parses, and by several processes."""

import gzip
import pickle
from itertools import product
from unittest.mock import Mock

import numpy as np
import pytest

from datamodules import graphs
from datamodules.corpora import Files
from datamodules.discourse.cache import MissingParse
from datamodules.discourse.parses import ParseRequest
from datamodules.documents import Document, UserError
from datamodules.graphs import RST, FromFile, ParagraphGraph, ParagraphRule, Topic, make_graph
from datamodules.graphsum import GraphSumData
from lightning_modules.discourse_parser.right_branching import RightBranchingParser
from tests.conftest import write_lines
from tests.datamodules.graphs.made_up import assert_is_graph, paragraphs
from tests.made_up_parses import RELATIONS, MadeUpParser, made_up_parse


class Given(ParagraphGraph):
    def __init__(self, weights, symmetric=True):
        self.given, self.symmetric = weights, symmetric

    def weights(self, paragraphs):
        return self.given


THREE = paragraphs("One.", "Two.", "Three.", id="doc-7")


@pytest.mark.parametrize("weights, message", [
    (np.ones((2, 3)), r"its graph is 2 x 3, not 3 x 3; give one row and one column for each of its 3 paragraphs"),
    ([[1, 0], [0]], "its graph is not a table of numbers"),
    (None, r"its graph is a single number|its graph is not a table of numbers"),
    ([[1, 1.5, 0], [1.5, 1, 0], [0, 0, 1]], r"weight 1\.5 between paragraphs 0 and 1 \(counted from 0\) is not in"),
    ([[1, 0, float("nan")], [0, 1, 0], [0, 0, 1]], "weight nan between paragraphs 0 and 2"),
    ([[1, 0.2, 0], [0.4, 1, 0], [0, 0, 1]], r"must be symmetric, but has 0\.2 from 0 to 1, 0\.4 back"),
])  # fmt: skip
def test_the_error_of_an_invalid_graph_names_its_document(weights, message):
    with pytest.raises(UserError, match=f"^Given: document 'doc-7': .*{message}"):
        Given(weights)(THREE)


def test_graphs_of_ones_own_whose_diagonal_becomes_one_and_by_name():
    found = Given([[0, 0.5, 0.25], [0.5, 0.3, 1 + 1e-7], [0.25, 1, 9]])(THREE)
    assert_is_graph(found, 3, symmetric=True)
    np.testing.assert_allclose(found, [[1, 0.5, 0.25], [0.5, 1, 1], [0.25, 1, 1]])
    kinds = {"similarity": graphs.Similarity, "topic": Topic, "discourse": graphs.Discourse, "none": graphs.NoGraph}
    assert {name: type(make_graph(name)) for name in kinds} == kinds
    own = Topic(topics=3)
    assert make_graph(own) is own
    names = "similarity, scaled_similarity, topic, discourse, rst, none"
    with pytest.raises(ValueError, match=f"'similar' is not one of {names}"):
        make_graph("similar")
    with pytest.raises(ValueError, match="graph rst needs a parser and a folder of parses"):
        make_graph("rst")


def test_graphs_from_a_file(tmp_path):
    rows = [{"id": "doc-7", "weights": [[0, 0.5, 1], [0, 0, 0], [0.1, 0, 0]]}, {"id": 8, "weights": [[0]]}]
    path = write_lines(tmp_path / "graphs.jsonl", rows)
    path.with_suffix(".jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    graph = FromFile(path.with_suffix(".jsonl.gz"))
    np.testing.assert_allclose(graph(THREE), [[1, 0.5, 1], [0, 1, 0], [0.1, 0, 1]], rtol=1e-6)
    assert graph(paragraphs("One.", id="8")).tolist() == [[1]]
    assert pickle.loads(pickle.dumps(graph))(THREE).tolist() == graph(THREE).tolist()
    other = write_lines(tmp_path / "other.jsonl", [{"name": "doc-7", "graph": rows[0]["weights"]}])
    renamed = FromFile(other, id="name", weights="graph")
    assert (renamed(THREE) == graph(THREE)).all() and renamed.digest() != graph.digest()


@pytest.mark.parametrize("lines, message", [
    ([{"id": "doc-7", "weights": [[1, 0], [0, 1]]}], r":1: document 'doc-7': its graph is 2 x 2, not 3 x 3"),
    ([{"id": "doc-8", "weights": [[1]]}], r"no graph of document 'doc-7' in field 'id'; add it"),
    ([{"id": "doc-7"}], r":1: it has no field 'weights'; name the right one"),
    ([{"id": "a", "weights": [[1]]}, {"id": "a", "weights": [[1]]}], r":2: document 'a' is also in line 1"),
    (["{broken"], r":1: broken JSON .*; fix it, every document needs a graph"),
])  # fmt: skip
def test_a_file_that_has_no_such_graph_says_where(tmp_path, lines, message):
    with pytest.raises(UserError, match=message):
        FromFile(write_lines(tmp_path / "graphs.jsonl", lines))(THREE)


@pytest.mark.parametrize("name", ["topic", "rst"])
def test_two_processes_give_what_one_gives_and_it_is_kept(name, corpus_files, tmp_path, monkeypatch):
    def data(folder, num_proc):
        options = {"graph": "rst", "parser": MadeUpParser()} if name == "rst" else {"graph": Topic(topics=3)}
        options |= {"vocab_size": 300, "paragraphs": ParagraphRule(sentences=1), "num_proc": num_proc}
        made = GraphSumData(Files(**corpus_files), cache_dir=tmp_path / folder, **options)
        made.prepare_data()
        return made.features("val")

    one, two = data("one", 1), data("two", 2)
    assert one["graph"][:] == two["graph"][:] and one["id"][:] == two["id"][:]
    assert any(0 < value < 1 for row in one["graph"] for value in row) or name == "rst"

    for kind in (RST, Topic):
        monkeypatch.setattr(kind, "weights", Mock(side_effect=AssertionError("the graph is there already")))
    assert data("one", 1)["graph"][:] == two["graph"][:]


def document(number: int) -> Document:
    lines = [f"Otter {number}.{i} swims, and the naïve heron 😀 watches." for i in range(9)]
    return Document(f"doc-{number}", [lines[:3], lines[3:4], [], lines[4:9]])


def by_hand(parse, found, without):
    """Return means over pairs of EDUs; an EDU belongs to the sentence of its first character."""
    starts, half, values = parse.edus[:, 0].tolist(), parse.half_width, np.zeros((2, parse.size, parse.size))
    band = parse.band(half)[..., [name not in without for name in parse.relations]].sum(-1)
    for a, b in product(range(parse.size), repeat=2):
        if 0 < abs(a - b) <= half:
            values[:, b, a] = band[a, half + b - a], 1
    spans = ParseRequest.of(found.document).sentences
    sentences = [next(n for n, (a, b) in enumerate(spans) if a <= start < b) for start in starts]
    member = np.array([[a <= sentence < b for sentence in sentences] for a, b in found.spans], float)
    sums, pairs = member @ values @ member.T  # of paragraphs
    weights = np.minimum(sums / np.maximum(pairs, 1), 1)
    np.fill_diagonal(weights, 1)
    return weights


@pytest.mark.parametrize("without", [(), ("cause",), RELATIONS])
@pytest.mark.parametrize("rule", [ParagraphRule(), ParagraphRule(4, 2, keep="spread"), ParagraphRule(2)])
def test_equals_the_mean_pair_by_pair(tmp_path, without, rule):
    graph = RST(MadeUpParser(), tmp_path, without)
    documents = [document(n) for n in range(3)]
    graph.prepare(documents)
    for one in documents:
        found = rule(one)
        weights = graph(found)
        assert_is_graph(weights, len(found), symmetric=False)
        np.testing.assert_allclose(weights, by_hand(made_up_parse(ParseRequest.of(one), 4), found, without), atol=1e-5)
        if without == RELATIONS:
            assert (weights == np.eye(len(found))).all()


def test_parsed_documents_are_not_parsed_again_and_the_graph_travels_without_its_parser(tmp_path):
    parser = MadeUpParser()
    make_graph("rst", parser, tmp_path).prepare([document(0), document(1)])
    assert len(parser.asked) == 2
    parser.weights = lambda: None  # cannot be pickled
    graph = make_graph("rst", parser, tmp_path)
    graph.prepare([document(1), Document("empty", [[]])])
    assert len(parser.asked) == 2
    with pytest.raises(MissingParse, match="no parse of document 'doc-5'"):
        graph(ParagraphRule()(document(5)))
    for parts in ([[]], [[" "], [""]]):
        assert graph(ParagraphRule()(Document("empty", parts))).tolist() == [[1]]
    again = pickle.loads(pickle.dumps(graph))
    found = ParagraphRule()(document(0))
    assert (again(found) == graph(found)).all() and again.digest() == graph.digest()
    others = [RST(parser, tmp_path, ()), RST(RightBranchingParser(), tmp_path)]
    assert len({graph.digest(), *(other.digest() for other in others)}) == 3
