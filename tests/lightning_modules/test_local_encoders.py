"""Caches depend on the content of a folder with a pretrained encoder, not on its path alone."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from datamodules.bertsum import ExtractiveData
from datamodules.corpora import Texts
from datamodules.graphsum import GraphSumData
from lightning_modules.discourse_parser.parser import DiscourseParser
from lightning_modules.extractive.zero_shot import ZeroShot

SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
WORDS = ["the", "cat", "sat", "dog", "ran", "."]


def write_encoder(folder: Path, seed: int = 0, words: list[str] = WORDS) -> str:
    """Write an encoder with random weights to a folder, over what is there."""
    torch.manual_seed(seed)
    vocabulary = {word: number for number, word in enumerate([*SPECIAL.values(), *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    return str(folder)


def parser(encoder: str) -> DiscourseParser:
    torch.manual_seed(0)
    return DiscourseParser.of_settings(encoder=encoder, layers=[1], hidden_size=16, fit_size=4)


@pytest.mark.parametrize("model", [ZeroShot, parser], ids=["zero-shot", "parser"])
def test_fingerprints_tell_weights_apart(model, tmp_path):
    first = model(write_encoder(tmp_path)).fingerprint
    assert model(write_encoder(tmp_path)).fingerprint == first  # the same weights
    assert model(write_encoder(tmp_path, seed=1)).fingerprint != first


@pytest.mark.parametrize(
    "data", [lambda name: ExtractiveData(Texts([]), 100, name), lambda name: GraphSumData(Texts([]), checkpoint=name)]
)
def test_settings_of_the_tokenizer_tell_vocabularies_apart(data, tmp_path):
    first = data(write_encoder(tmp_path)).tokenizer_settings()
    assert data(write_encoder(tmp_path, seed=1)).tokenizer_settings() == first  # other weights, the same vocabulary
    assert data(write_encoder(tmp_path, words=WORDS[::-1])).tokenizer_settings() != first
