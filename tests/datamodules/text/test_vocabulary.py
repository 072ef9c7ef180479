import json
from collections import Counter

import pytest

from datamodules.documents import UserError
from datamodules.text.vocabulary import SPECIALS, START, STOP, UNK, Vocabulary

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
    with pytest.raises(ValueError, match="must be distinct"):
        Vocabulary(["a", "a"])
    with pytest.raises(ValueError, match="must be distinct"):
        Vocabulary(["a", "[UNK]"])
    with pytest.raises(FileNotFoundError, match="no such file"):
        Vocabulary.load(tmp_path)
    assert START < STOP


@pytest.mark.parametrize("content", ['{"words": [', '{"letters": []}', "3"])
def test_a_file_that_is_no_vocabulary_is_named(content, tmp_path):
    (tmp_path / Vocabulary.file_name).write_text(content)
    with pytest.raises(UserError, match=rf"{Vocabulary.file_name}: not a vocabulary \(.*give the `text` folder"):
        Vocabulary.load(tmp_path)
