import pickle

import numpy as np
import pytest

from datamodules.discourse.cache import MissingParse
from datamodules.discourse.parses import ParseRequest
from datamodules.documents import Document
from datamodules.graphs import RST, ParagraphRule, make_graph
from lightning_modules.discourse_parser.right_branching import RightBranchingParser
from tests.datamodules.graphs.made_up import assert_is_graph
from tests.made_up_parses import RELATIONS, MadeUpParser, made_up_parse


def document(number: int) -> Document:
    lines = [f"Otter {number}.{i} swims, and the naïve heron 😀 watches." for i in range(9)]
    return Document(f"doc-{number}", [lines[:3], lines[3:4], [], lines[4:9]])


def by_hand(parse, found, without):
    """Return means over pairs of EDUs by a loop; an EDU belongs to the sentence of its first character."""
    request = ParseRequest.of(found.document)
    owner = []
    for start, _ in parse.edus.tolist():
        sentence = next(n for n, (a, b) in enumerate(request.sentences) if a <= start < b)
        owner.append(next((n for n, (a, b) in enumerate(found.spans) if a <= sentence < b), None))
    band, half = parse.band(parse.half_width), parse.half_width
    weights = np.eye(len(found))
    for i in range(len(found)):
        for j in range(len(found)):
            values = [
                sum(float(band[a, half + b - a, r]) for r, name in enumerate(parse.relations) if name not in without)
                for a in range(parse.size)
                for b in range(parse.size)
                if owner[a] == j and owner[b] == i and 0 < abs(a - b) <= half
            ]
            if i != j:
                weights[i, j] = min(1.0, sum(values) / len(values)) if values else 0.0
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


def test_parsed_documents_are_not_parsed_again(tmp_path):
    parser = MadeUpParser()
    make_graph("rst", parser, tmp_path).prepare([document(0), document(1)])
    assert len(parser.asked) == 2
    graph = make_graph("rst", parser, tmp_path)
    graph.prepare([document(1), Document("empty", [[]])])
    assert len(parser.asked) == 2
    with pytest.raises(MissingParse, match="no parse of document 'doc-5'"):
        graph(ParagraphRule()(document(5)))
    assert graph(ParagraphRule()(Document("empty", [[]]))).tolist() == [[1]]
    assert graph(ParagraphRule()(Document("blank", [[" "], [""]]))).tolist() == [[1]]


def test_it_travels_to_other_processes_without_its_parser(tmp_path):
    class Heavy(MadeUpParser):
        def __reduce__(self):
            raise AssertionError("a parser stays where it is")

    graph = RST(Heavy(), tmp_path)
    graph.prepare([document(0)])
    again = pickle.loads(pickle.dumps(graph))
    found = ParagraphRule()(document(0))
    assert (again(found) == graph(found)).all() and again.digest() == graph.digest()
    others = [RST(Heavy(), tmp_path, ()), RST(RightBranchingParser(), tmp_path)]
    assert len({graph.digest(), *(other.digest() for other in others)}) == 3
