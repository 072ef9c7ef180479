"""Caches depend on the content of a folder with a pretrained encoder, not on its path alone."""

import pytest
import torch
from tiny_models import write_bert

from datamodules.bertsum import ExtractiveData
from datamodules.corpora import Texts
from datamodules.graphsum import GraphSumData
from lightning_modules.discourse_parser.parser import DiscourseParser
from lightning_modules.extractive.zero_shot import ZeroShot

WORDS = ["the", "cat", "sat", "dog", "ran", "."]


def parser(encoder: str) -> DiscourseParser:
    torch.manual_seed(0)
    return DiscourseParser.of_settings(encoder=encoder, layers=[1], hidden_size=16, fit_size=4)


@pytest.mark.parametrize("model", [ZeroShot, parser], ids=["zero-shot", "parser"])
def test_fingerprints_tell_weights_apart(model, tmp_path):
    first = model(write_bert(tmp_path, WORDS)).fingerprint
    assert model(write_bert(tmp_path, WORDS)).fingerprint == first  # the same weights
    assert model(write_bert(tmp_path, WORDS, seed=1)).fingerprint != first


@pytest.mark.parametrize(
    "data", [lambda name: ExtractiveData(Texts([]), 100, name), lambda name: GraphSumData(Texts([]), checkpoint=name)]
)
def test_settings_of_the_tokenizer_tell_vocabularies_apart(data, tmp_path):
    first = data(write_bert(tmp_path, WORDS)).tokenizer_settings()
    # other weights, the same vocabulary
    assert data(write_bert(tmp_path, WORDS, seed=1)).tokenizer_settings() == first
    assert data(write_bert(tmp_path, WORDS[::-1])).tokenizer_settings() != first
