"""Words of a text, their vocabulary, and files of their vectors."""

import gzip
import json
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from datamodules.documents import UserError
from datamodules.text.vocabulary import SPECIALS, STOP, UNK, Vocabulary
from datamodules.text.word_vectors import read_word_vectors
from datamodules.text.words import detokenize, sentences_of, tokenize

TEXTS = ["the cat sat", "the dog sat on the mat", "[UNK] [STOP] cat"]


def test_keeps_the_most_frequent_words_ties_in_alphabetical_order():
    counts = Counter(word for text in TEXTS for word in text.split() if word not in SPECIALS)
    expected = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))][:4]
    vocabulary = Vocabulary.build(TEXTS, 8, tokenizer="whitespace", lowercase=False)
    assert vocabulary.words == [*SPECIALS, *expected]
    assert len(vocabulary) == 8


def test_text_that_spells_a_special_symbol_is_an_unknown_word():
    vocabulary = Vocabulary.build(TEXTS, 20, tokenizer="whitespace", lowercase=False)
    assert "[UNK]" not in vocabulary.words[len(SPECIALS) :]
    ids, oov_words = vocabulary.extend(["[STOP]", "cat"], len(vocabulary))
    assert oov_words == ["[STOP]"] and ids[0] == len(vocabulary)  # it can be copied as the word that it is


def test_extension_numbers_the_missing_words_in_order_of_appearance():
    vocabulary = Vocabulary(["a", "b"])
    ids, oov_words = vocabulary.extend(["x", "a", "y", "x", "b"], size=10)
    assert ids == [10, 4, 11, 10, 5]
    assert oov_words == ["x", "y"]
    assert vocabulary.target_ids(["y", "z", "a"], oov_words, size=10) == [11, UNK, 4]
    assert vocabulary.decode([11, 4, 10, UNK], oov_words, size=10) == ["y", "a", "x", "[UNK]"]


def test_saved_and_loaded_are_equal(tmp_path):
    vocabulary = Vocabulary(["ä", "日本", '"'], tokenizer="whitespace", lowercase=False)
    vocabulary.save(tmp_path / "text")
    loaded = Vocabulary.load(tmp_path / "text")
    assert loaded.state() == vocabulary.state()
    assert [path.name for path in (tmp_path / "text").iterdir()] == ["vocabulary.json"]
    saved = json.loads((tmp_path / "text" / "vocabulary.json").read_text(encoding="utf-8"))
    assert saved["words"] == ["ä", "日本", '"']


def test_errors_say_what_to_do(tmp_path):
    with pytest.raises(ValueError, match="has only the 4 special symbols"):
        Vocabulary.build(TEXTS, STOP + 1)
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
    assert sentences_of(["a", ".", "b", "?", "c"]) == [["a", "."], ["b", "?"], ["c"]]
    assert sentences_of([".", "."]) == [["."], ["."]]
    assert sentences_of([]) == []
    for text in ('he said "yes" (twice)!', "a, b; c: d.", "cost: $5 and 10%", "`x` and `y`", "what? no! [one] {two}"):
        assert detokenize(tokenize(text)) == text


@given(st.text(max_size=200))
def test_no_visible_character_is_lost(text):
    assert "".join(tokenize(text, lowercase=False)) == "".join(text.split())


WORDS = ["[PAD]", "the", "cat", ". .", "sat"]


@pytest.fixture
def write(tmp_path):
    def make(text, name="vectors.txt"):
        path = tmp_path / name
        data = text if isinstance(text, bytes) else text.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return make


@pytest.mark.parametrize("header", ["", "4 2\n"], ids=["glove", "word2vec"])
@pytest.mark.parametrize("name", ["vectors.txt", "vectors.txt.gz"])
def test_reads_the_vectors_of_known_words(write, header, name):
    path = write(header + "sat 1 -2e-1\nelse 3 4\nthe 5 6 \nthe 9 9\n. . 7 8\n", name)
    rows, vectors = read_word_vectors(path, WORDS, 2)
    assert rows.tolist() == [1, 3, 4]
    torch.testing.assert_close(vectors, torch.tensor([[5.0, 6], [7, 8], [1, -0.2]]))


@pytest.mark.parametrize("text, message", [
    ("the 1 2 3\n", r"vectors.txt:1: a vector of size 3, but the embedding has 2; set --model.embedding.size"),
    ("2 1\nthe 1\n", r"vectors.txt:2: a vector of size 1"),
    ("the 1 2\ncat 1 2x\n", r"vectors.txt:2: could not convert string to float: '2x'"),
    ("dog 1 2\n", r"vectors.txt: no vector of any of the vocabulary's 5 words"),
    (b"the 1 \xff\n", r"vectors.txt: not UTF-8"),
])  # fmt: skip
def test_errors_in_a_file_have_its_line(write, text, message):
    with pytest.raises(UserError, match=message):
        read_word_vectors(write(text), WORDS, 2)


def test_a_file_that_is_absent_or_cut_off_is_named(write, tmp_path):
    with pytest.raises(UserError, match=r"nowhere.txt: cannot be read"):
        read_word_vectors(tmp_path / "nowhere.txt", WORDS, 2)
    path = write("the 1 2\n" * 100, "vectors.txt.gz")
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(UserError, match=r"vectors.txt.gz: cannot be read"):
        read_word_vectors(path, WORDS, 2)
