"""Subword tokenizers, words of a text, their vocabulary, and files of their vectors."""

import gzip
import json
from collections import Counter
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import BertTokenizerFast, PreTrainedTokenizerFast

from datamodules.documents import UserError
from datamodules.graphsum import GraphTokenizer
from datamodules.text.language import language_of
from datamodules.text.subword_tokenizer import SMALLEST, MaskingTokenizer, SubwordTokenizer
from datamodules.text.subwords import Subwords
from datamodules.text.vocabulary import SPECIALS, STOP, UNK, Vocabulary
from datamodules.text.word_vectors import read_word_vectors
from datamodules.text.words import detokenize, tokenize

TEXTS = ["The otter guards the mill.", "Every otter guards a mill, and naïve herons watch.", "The 😀 otter."] * 3


@pytest.fixture(scope="module")
def text():
    return SubwordTokenizer.build(TEXTS, SMALLEST + 40)


@pytest.fixture(scope="module")
def masking():
    return MaskingTokenizer.build(TEXTS, SMALLEST + 41)


def word_pieces(folder, words) -> str:
    BertTokenizerFast(vocab={word: i for i, word in enumerate(words)}).save_pretrained(folder / "word_pieces")
    return str(folder / "word_pieces")


def test_any_text_comes_back_and_offsets_are_characters_in_order_and_cover_what_is_visible(text):
    for written_text in [*TEXTS, "zebra \U0001f9a6 Ωmega", "", "</s> spells <pad> and <s>", "a naïve 😀 heron"]:
        ids, offsets = text(written_text)
        assert text.decode(ids) == written_text.strip() and not {text.start, text.pad, text.stop} & set(ids)
        assert len(ids) == len(offsets) and offsets == sorted(offsets)
        covered = {at for start, end in offsets for at in range(start, end)}
        assert {at for at, character in enumerate(written_text) if not character.isspace()} <= covered
        for token, (start, end) in zip(ids, offsets):
            piece = text.decode([token])
            assert "\ufffd" in piece or piece == written_text[start:end].strip()


def test_saved_loaded_and_from_a_state_and_tokens_that_end_a_sentence(text, masking, tmp_path):
    for original in (text, masking):
        original.save(tmp_path)
        for other in (type(original).load(tmp_path), type(original).from_state(original.state())):
            assert other.state() == original.state() and other("The </s> otter") == original("The </s> otter")
            assert getattr(other, "mask", None) == getattr(original, "mask", None)
    text.save(tmp_path)
    PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json")).save_pretrained(tmp_path / "released")
    assert SubwordTokenizer.of_checkpoint(str(tmp_path / "released"))("The otter") == text("The otter")
    ends = text.end_ids()
    assert {text(mark)[0][-1] for mark in (".", "!", "?")} <= set(ends)
    assert all(text.decode([i]).endswith((".", "!", "?")) for i in ends) and not {text.start, text.stop} & set(ends)
    assert text.end_ids([";"]) == [i for i in range(len(text)) if text.decode([i]).endswith(";")]


def test_invalid_tokenizers_are_refused(text, masking, tmp_path):
    for kind, size, needed in ((SubwordTokenizer, 100, SMALLEST), (MaskingTokenizer, SMALLEST, SMALLEST + 1)):
        with pytest.raises(ValueError, match=f"vocabulary of {size}: it needs at least {needed}"):
            kind.build(TEXTS, size)
    with pytest.raises(UserError, match=r"no such file; give --data\.tokenizer_dir a folder"):
        SubwordTokenizer.load(tmp_path)
    for kind, content, message in (
        (SubwordTokenizer, '{"model": 3', r"tokenizer\.json: not a tokenizer"),
        (SubwordTokenizer, text.backend.to_str().replace("<pad>", "<padding>"), "the tokenizer has no <pad>"),
        (MaskingTokenizer, masking.backend.to_str().replace("</s>", "<end>"), "the tokenizer has no </s>"),
    ):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(UserError, match=message):
            kind.load(tmp_path)


def test_separators_are_symbols_of_their_own_and_have_other_names_in_tokenizers_of_berts_kind(tmp_path):
    text = GraphTokenizer.build(TEXTS, SMALLEST + 42)
    assert (text.paragraph, text.sentence) == (4, 5) and len(text) <= SMALLEST + 42
    assert 5 in text.end_ids() and 4 not in text.end_ids()
    ids, _ = text("The <p> otter <q>")
    assert not {4, 5} & set(ids) and text.decode([5, *ids, 4]) == "The <p> otter <q>"
    text.save(tmp_path)
    assert SubwordTokenizer.load(tmp_path).sentence == 5
    without = SubwordTokenizer.build(TEXTS, SMALLEST)
    assert without.paragraph is None and without.sentence is None
    # a tokenizer of BERT's kind
    folder = word_pieces(tmp_path, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "an", "otter", "##s"])
    text = GraphTokenizer.of_checkpoint(folder)
    assert (text.start, text.pad, text.stop, text.paragraph, text.sentence) == (2, 0, 3, 8, 9)
    ids, offsets = text("an otters")
    assert text.decode([2, *ids, 9, 3]) == "an otters" and offsets == [(0, 2), (3, 8), (8, 9)]
    # spaces beside other words, but not between Chinese characters
    folder = word_pieces(tmp_path, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"水獭（“”）", "otter"])
    chinese = MaskingTokenizer.of_checkpoint(folder)
    assert chinese.decode(chinese("水獭（“水”） otter")[0]) == "水獭（“水”） otter" and chinese.mask == 4
    assert SubwordTokenizer.of_checkpoint(folder).sentence is None


def test_the_mask_is_a_token_and_no_text(masking, tmp_path):
    assert masking.mask == len(masking) - 1 <= SMALLEST + 40
    assert masking.opening == [masking.start] and len({masking.start, masking.pad, masking.stop, masking.mask}) == 4
    ids, _ = masking("the <mask> mill")
    assert masking.mask not in ids and masking.decode(ids) == "the <mask> mill"
    assert masking.decode([masking.mask, *ids, masking.stop, masking.mask]) == "the <mask> mill"
    # a tokenizer of Pegasus' kind starts with padding
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<mask_1>", 0.0), ("<mask_2>", 0.0), ("<n>", -1.0), ("<unk>", 0.0)]
    pieces += [("▁otter", -2.0), ("▁the", -2.0), ("▁", -3.0), ("▁mill", -2.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=5))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer.add_special_tokens(["<pad>", "</s>", "<mask_1>", "<mask_2>"])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path)
    masking = MaskingTokenizer.of_checkpoint(str(tmp_path))
    assert (masking.pad, masking.stop, masking.mask, masking.start, masking.opening) == (0, 1, 2, 0, [])
    assert masking("the otter")[0] == [7, 6]
    assert masking.decode([7, 6, 4, 7, 9, 1]) == "the otter the mill"


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "cells", "di", "##vide", ".", "é"]


def byte_pairs(folder) -> str:
    """A folder with a tokenizer of bytes, as GPT-2's and RoBERTa's: a character may be several tokens."""
    alphabet = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder / "bytes")
    return str(folder / "bytes")


def test_tokens_and_their_characters(tmp_path):
    subwords = Subwords(word_pieces(tmp_path, WORDS))
    text = "Cells  divide.\n"
    ids, offsets = subwords(text)
    assert [WORDS[i] for i in ids] == ["cells", "di", "##vide", "."]
    assert [text[a:b] for a, b in offsets] == ["Cells", "di", "vide", "."]
    assert subwords.special == ([2], [3]) and subwords.pad_id == 0
    # a tokenizer without special tokens
    byte_level = Subwords(byte_pairs(tmp_path))
    text = "a 🧬"
    assert byte_level.special == ([], []) and byte_level.pad_id == 0
    assert [text[a:b] for a, b in byte_level(text).offsets][-4:] == ["🧬"] * 4  # four bytes of one character
    odd = ["", "   \n", "🧬 é a", "a\ud800b", "\u200b\u0000", "e\u0301\u0301 \u3000x"]
    for encode, text in product((subwords, byte_level), odd):
        ids, offsets = encode(text)
        assert len(ids) == len(offsets)
        for start, end in offsets:
            assert 0 <= start <= end <= len(text) and text[start:end] == text[start:end].strip()
        assert [start for start, _ in offsets] == sorted(start for start, _ in offsets)


CATS = ["the cat sat", "the dog sat on the mat", "[UNK] [STOP] cat"]


def test_keeps_the_most_frequent_words_and_no_special_symbols():
    counts = Counter(word for text in CATS for word in text.split() if word not in SPECIALS)
    expected = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))][:4]
    vocabulary = Vocabulary.build(CATS, 8, tokenizer="whitespace", lowercase=False)
    assert vocabulary.words == [*SPECIALS, *expected] and len(vocabulary) == 8
    # text that spells a special symbol is an unknown word
    vocabulary = Vocabulary.build(CATS, 20, tokenizer="whitespace", lowercase=False)
    assert "[UNK]" not in vocabulary.words[len(SPECIALS) :]
    ids, oov_words = vocabulary.extend(["[STOP]", "cat"], len(vocabulary))
    assert oov_words == ["[STOP]"] and ids[0] == len(vocabulary)  # it can be copied as the word that it is
    # missing words are numbered in order of appearance
    vocabulary = Vocabulary(["a", "b"])
    ids, oov_words = vocabulary.extend(["x", "a", "y", "x", "b"], size=10)
    assert ids == [10, 4, 11, 10, 5] and oov_words == ["x", "y"]
    assert vocabulary.target_ids(["y", "z", "a"], oov_words, size=10) == [11, UNK, 4]
    assert vocabulary.decode([11, 4, 10, UNK], oov_words, size=10) == ["y", "a", "x", "[UNK]"]


def test_a_vocabulary_is_saved_and_loaded_or_an_error_says_what_to_do(tmp_path):
    vocabulary = Vocabulary(["ä", "日本", '"'], tokenizer="whitespace", lowercase=False)
    vocabulary.save(tmp_path / "text")
    assert Vocabulary.load(tmp_path / "text").state() == vocabulary.state()
    (path,) = (tmp_path / "text").iterdir()
    assert path.name == "vocabulary.json"
    assert json.loads(path.read_text(encoding="utf-8"))["words"] == ["ä", "日本", '"']
    with pytest.raises(ValueError, match="has only the 4 special symbols"):
        Vocabulary.build(CATS, STOP + 1)
    for words in (["a", "a"], ["a", "[UNK]"]):
        with pytest.raises(ValueError, match="must be distinct"):
            Vocabulary(words)
    with pytest.raises(FileNotFoundError, match="no such file"):
        Vocabulary.load(tmp_path)
    for content in ('{"words": [', '{"letters": []}', "3"):
        (tmp_path / Vocabulary.file_name).write_text(content)
        with pytest.raises(UserError, match=rf"{Vocabulary.file_name}: not a vocabulary \(.*give the `text` folder"):
            Vocabulary.load(tmp_path)


@pytest.mark.parametrize(("text", "words"), [
    ("re-use torch.nn at 9:00, 10/30/01", ["re-use", "torch.nn", "at", "9:00", ",", "10/30/01"]),
    ('He said "yes" (twice)!', ["he", "said", '"', "yes", '"', "(", "twice", ")", "!"]),
    ("a_b e.g. Don't", ["a_b", "e.g", ".", "don't"]),
    ("Ünïcode 日本 ©", ["ünïcode", "日本", "©"]),
    (" \t\n ", []),
])  # fmt: skip
def test_words_keep_inner_punctuation_and_separate_the_rest(text, words):
    assert tokenize(text) == words


def test_case_whitespace_sentences_and_the_way_back():
    assert tokenize("The CAT", lowercase=False) == ["The", "CAT"]
    assert tokenize("it 's `` fine '' .", "whitespace") == ["it", "'s", "``", "fine", "''", "."]
    for sentences in ([["a", ".", "”"], ["b", "?"], ["c"]], [["."], ["."]], [["”"]], []):
        assert language_of("en").sentences_of([word for sentence in sentences for word in sentence]) == sentences
    for text in ('he said "yes" (twice)!', "a, b; c: d.", "cost: $5 and 10%", "`x` and `y`", "what? no! [one] {two}"):
        assert detokenize(tokenize(text)) == text


@given(st.text(max_size=200))
def test_no_visible_character_is_lost(text):
    assert "".join(tokenize(text, lowercase=False)) == "".join(text.split())


KNOWN = ["[PAD]", "the", "cat", ". .", "sat"]


@pytest.mark.parametrize("header", [b"", b"4 2\n"], ids=["glove", "word2vec"])
@pytest.mark.parametrize("name, pack", [("vectors.txt", bytes), ("vectors.txt.gz", gzip.compress)])
def test_reads_the_vectors_of_known_words(tmp_path, header, name, pack):
    (tmp_path / name).write_bytes(pack(header + b"sat 1 -2e-1\nelse 3 4\nthe 5 6 \nthe 9 9\n. . 7 8\n"))
    rows, vectors = read_word_vectors(tmp_path / name, KNOWN, 2)
    assert rows.tolist() == [1, 3, 4]
    torch.testing.assert_close(vectors, torch.tensor([[5.0, 6], [7, 8], [1, -0.2]]))


def test_errors_in_a_file_of_vectors_are_named_with_it(tmp_path):
    for name, content, message in [
        ("v.txt", b"the 1 2 3\n", "v.txt:1: a vector of size 3, but the embedding has 2; set --model.embedding.size"),
        ("v.txt", b"2 1\nthe 1\n", "v.txt:2: a vector of size 1"),
        ("v.txt", b"the 1 2\ncat 1 2x\n", "v.txt:2: could not convert string to float: '2x'"),
        ("v.txt", b"dog 1 2\n", "v.txt: no vector of any of the vocabulary's 5 words"),
        ("v.txt", b"the 1 \xff\n", "v.txt: not UTF-8"),
        ("v.txt.gz", gzip.compress(b"the 1 2\n" * 100)[:-12], "v.txt.gz: cannot be read"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=message):
            read_word_vectors(tmp_path / name, KNOWN, 2)
    with pytest.raises(UserError, match=r"nowhere\.txt: cannot be read"):
        read_word_vectors(tmp_path / "nowhere.txt", KNOWN, 2)
