"""The shipped parsers: their output for a text, and that they are as good as their cards say."""

import re

import pytest
import torch

from datamodules.discourse.features import ParserBatch
from datamodules.discourse.parses import ParseRequest
from datamodules.documents import Document
from datamodules.treebank import TreebankData
from lightning_modules.discourse_parser.parser import DiscourseParser
from lightning_modules.discourse_parser.shipped import weights_folder
from tests.lightning_modules.discourse_parser.shipped import GUM, MINILM_INSTALLED, each_shipped, needs_gum

TEXT = Document(
    "story",
    [
        ["Although it rained all day, the farmers worked in the field because the harvest was late.", "They were wet."],
        ["In the evening the sun came out."],
    ],
)


def test_the_weights_are_small():
    weights = weights_folder("discourse_parser", "small").parents[1]
    files = (path for path in weights.rglob("*.safetensors") if "summarizer" not in path.parts)
    sizes = {path: path.stat().st_size for path in files}
    assert len(sizes) == 6 and max(sizes.values()) < 15e6
    assert sum(size for path, size in sizes.items() if path.parent.name != "mpnet") < 15e6, "the defaults together"


@each_shipped
def test_parses_a_text_after_set_up(name):
    parse = DiscourseParser.load(name).parse(ParseRequest.of(TEXT))
    texts = [TEXT.text[start:end] for start, end in parse.edus.tolist()]
    assert texts[-1] == "In the evening the sun came out." and "They were wet." in texts and 4 <= parse.size <= 7
    tree = parse.best_tree()
    # the first sentence is a node; over MPNet, which attaches the second sentence to its last clause, the paragraph is
    last = len(texts) - 2 if name == "mpnet" else texts.index("They were wet.") - 1
    assert tree.node(0, last) is not None
    pairs = parse.dense().sum(-1)
    both_ways = (pairs + pairs.T)[~torch.eye(parse.size, dtype=torch.bool)]
    assert both_ways.min() > 0.95 and both_ways.max() < 2.05  # one byte a value


def test_the_default_is_the_best_available_parser():
    assert DiscourseParser.shipped().settings["encoder"] == ("minilm" if MINILM_INSTALLED else "small")


@each_shipped
@needs_gum
def test_scores_equal_those_of_the_model_card(name):
    model = DiscourseParser.load(name)
    path = GUM / "val.jsonl.gz"
    data = TreebankData(path, path, checkpoint=model.settings["encoder"])
    data.setup("validate")
    for text in data._features["val"]:
        with torch.no_grad():
            model._score(ParserBatch.of([text]), "val")
    scores = model.metrics["val"].compute()
    card = (weights_folder("discourse_parser", name) / "README.md").read_text(encoding="utf-8")
    said = dict(re.findall(r"([SNRF]) (\d+\.\d)", card.partition("original Parseval:")[2])[:4])
    assert {level: scores[f"original_parseval/{level}"].item() for level in said} == pytest.approx(
        {level: float(value) for level, value in said.items()}, abs=0.2
    )
    assert scores["original_parseval/F"] > {"mpnet": 42, "minilm": 40, "small": 36}[name]
