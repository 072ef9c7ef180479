import sys
from types import SimpleNamespace

import pytest

from datamodules.discourse.parses import ParseRequest
from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.trees import Span, Tree
from datamodules.documents import Document, UserError
from lightning_modules.discourse_parser.right_branching import RightBranchingParser, right_branching, segment
from precis.config.parsers import load_parser


def test_segments_end_at_punctuation_and_sentences_and_known_edus_stay():
    sentences = ["He ran home, but nobody was there; the rain was heavy.", "No: never.", "Yes, sir."]
    request = ParseRequest.of(Document("d", [sentences]))
    pieces = [request.text[start:end].strip() for start, end in segment(request)]
    assert pieces == ["He ran home,", "but nobody was there;", "the rain was heavy.", "No: never.", "Yes, sir."]
    document = Document("d", [["One two three four.", "Five."]])
    request = ParseRequest.of(document, [(0, 7), (8, 19), (20, 25)])
    found = RightBranchingParser(band=1).parse(request)
    assert found.edus.tolist() == [[0, 7], [8, 19], [20, 25]] and found.half_width == 1
    assert found.best_tree().node(0, 1).relation == "elaboration"  # within the sentence
    assert RightBranchingParser("nucleus").parse(request).rows == "nucleus"


def test_right_branching_by_hand():
    # two paragraphs: (0 1 | 2) and (3); sentences 0-1, 2, 3
    text, edus = "aa bb cc dd", [(0, 2), (3, 5), (6, 8), (9, 11)]
    sentences, paragraphs = [(0, 5), (6, 8), (9, 11)], [(0, 8), (9, 11)]
    document = TreebankDocument("x", text, edus, sentences, paragraphs)
    within, between = ("NS", "elaboration"), ("NN", "joint")
    spans = [Span(0, 2, 3, *between), Span(0, 1, 2, *between), Span(0, 0, 1, *within)]
    assert right_branching(document).spans() == spans
    bare = right_branching(TreebankDocument("x", text, edus))
    assert [span[:3] for span in bare.spans()] == [(0, 0, 3), (1, 1, 3), (2, 2, 3)]
    assert right_branching(TreebankDocument("x", "a", [(0, 1)], [(0, 1)])) == Tree(1)


def unit(text="", left=None, right=None, relation="", nuclearity="", proba=1.0):
    return SimpleNamespace(text=text, left=left, right=right, relation=relation, nuclearity=nuclearity, proba=proba)


class StandIn:
    """Stands in for `isanlp_rst.parser.Parser`."""

    def __init__(self, **options):
        self.options = options

    def __call__(self, text):
        inner = unit("", unit("Otters swim ,"), unit("and herons  watch."), "elaboration", "NS", 0.5)
        return {"rst": [unit("", inner, unit("It rains."), "Joint", "NN")]}

    def from_edus(self, edus):
        return {"rst": [unit(edus[0])]}


def test_isanlp_has_the_same_interface(monkeypatch):
    monkeypatch.setitem(sys.modules, "isanlp_rst", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "isanlp_rst.parser", SimpleNamespace(Parser=StandIn))
    parser = load_parser("isanlp_rst", "side", 5)
    request = ParseRequest.of(Document("d", [["Otters swim, and herons watch.", "It rains."]]))
    (found,) = parser.predict_step([request], 0)
    assert [request.text[a:b] for a, b in found.edus.tolist()] == ["Otters swim,", "and herons watch.", "It rains."]
    joint, elaboration = found.relations.index("joint"), found.relations.index("elaboration")
    dense = found.dense()
    assert dense[0, 1, elaboration].item() == pytest.approx(0.5, abs=0.004) and dense[1, 0].eq(0).all()
    assert dense[0, 2, joint] == dense[2, 1, joint] == 1
    assert parser._parser.options["hf_model_version"] == "gumrrg" and len(parser.fingerprint) == 64
    other = load_parser("isanlp_unirst", "side", 5)
    other.parse(request)
    chosen = {name: other._parser.options[name] for name in ("hf_model_version", "relinventory")}
    assert chosen == {"hf_model_version": "unirst", "relinventory": "eng.erst.gum"}
    assert other.fingerprint != parser.fingerprint
    given = ParseRequest.of(Document("d", [["Otters swim."]]), [(0, 12)])
    assert parser.parse(given).size == 1
    with pytest.raises(UserError, match="document 'e': isanlp_rst's EDU 'Otters swim ,' is not the text"):
        parser.parse(ParseRequest.of(Document("e", [["Something else."]])))
