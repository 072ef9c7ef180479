"""The features of words and EDUs that a segmenter reads."""

import zlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from datamodules.discourse.parses import ParseRequest
from datamodules.documents import UserError
from datamodules.text.edu_features import MAX_CHAIN, SegmentationBatch, edu_features, sentence_starts
from datamodules.text.hashing import FEATURES, hashed_words, word_features
from datamodules.text.subwords import Tokens

TEXT = "We left,  because it rained.\nThe end."


def asked(text: str, sentences=(), paragraphs=()) -> ParseRequest:
    return ParseRequest("doc", text, sentences, paragraphs)


WHOLE = asked(TEXT, [(0, 28), (29, 37)], [(0, 28), (29, 37)])


def letters(text: str) -> Tokens:
    """Return a piece for each letter, and one without characters."""
    offsets = [(at, at + 1) for at, letter in enumerate(text) if not letter.isspace()]
    return Tokens([7, *range(len(offsets))], [(0, 0), *offsets])


def test_features_of_each_word_and_where_sentences_begin():
    features = edu_features(WHOLE, letters, [(0, 8), (10, 28), (29, 37)], "doc")
    words = ["We", "left", ",", "because", "it", "rained", ".", "The", "end", "."]
    assert [TEXT[a:b] for a, b in features.offsets] == words
    assert features.chains == [7, 3] and features.starts == [0, 29]
    assert features.begins.nonzero().flatten().tolist() == [0, 7]
    assert features.tags.nonzero().flatten().tolist() == [0, 3, 7]
    assert features.layout[3].tolist() == pytest.approx([0, 0, 1, 3 / 20, 3 / 20, 7 / 60])
    assert features.layout[7].tolist() == pytest.approx([1, 1, 1, 0, 2 / 20, 3 / 60])
    assert features.layout[2, 2] == 0  # no space before the comma
    assert features.piece_words.tolist() == [-1, *(i for i, word in enumerate(words) for _ in word)]
    features = edu_features(asked(TEXT))
    assert features.starts == [0, 29] and features.layout[7, 1] == 1
    features = edu_features(asked("abcd ef gh", [(0, 2), (2, 10)]))  # one begins inside a word
    assert features.starts == [0, 2]  # an EDU begins there all the same
    assert features.chains == [1, 2] and features.begins.tolist() == [True, True, False]
    # text before and after the sentences
    assert sentence_starts(asked("  Oh! One. Two. More", [(6, 10), (10, 10), (11, 15)])) == [2, 6, 11]
    assert sentence_starts(asked(" One.", [(0, 5)])) == [1]
    # a long sentence is cut evenly
    features = edu_features(asked("a " * (2 * MAX_CHAIN + 1), [(0, 10)]))
    assert features.chains == [267, 267, 267] and features.begins.sum() == 1
    for blank in ("", " \n\t"):
        features = edu_features(asked(blank), letters)
        assert features.offsets == features.chains == features.starts == [] and features.words.shape == (0, 10)


@pytest.mark.parametrize("parse_request, edus, message", [
    (asked("abc", [(0, 4)]), [], r"text: sentences\[0\] is characters 0 to 4 of a text of 3"),
    (asked("abc"), [(3, 4)], "EDU begins at character 3"),
])  # fmt: skip
def test_offsets_of_another_text_are_refused(parse_request, edus, message):
    with pytest.raises(UserError, match=message):
        edu_features(parse_request, edus=edus)


def test_a_batch_puts_texts_in_a_row():
    texts = [edu_features(WHOLE, letters, [(29, 37)], "one"), edu_features(asked("Go on"), letters, name="two")]
    batch = SegmentationBatch.of(texts)
    assert batch.ids == ["one", "two"] and batch.batch_size == 2 and batch.lengths.tolist() == [7, 3, 2]
    assert batch.rows.tolist() == [[0, 1, 2, 3, 4, 5, 6], [7, 8, 9, 0, 0, 0, 0], [10, 11, 0, 0, 0, 0, 0]]
    assert batch.word_counts == [10, 2] and batch.piece_words.tolist()[-5:] == [-1, 10, 10, 11, 11]
    assert batch.piece_counts == [len(text.pieces) for text in texts]
    moved = batch.to(torch.device("cpu"))
    assert moved.rows.equal(batch.rows) and moved.texts is batch.texts


def test_words_and_marks_and_their_features():
    text = "Don’t stop -- Rev-2... it's 3.5!"
    words = ["Don’t", "stop", "--", "Rev", "-", "2", "...", "it's", "3", ".", "5", "!"]
    assert [text[a:b] for a, b in hashed_words(text)[0]] == words
    names = ["wrunning", "p1r", "p2ru", "p3run", "p4runn", "s1g", "s2ng", "s3ing", "s4ning", "hXxx"]
    assert word_features("Running") == tuple(zlib.crc32(name.encode()) for name in names)
    assert len(names) == FEATURES
    assert word_features("NASA-2")[-1] == word_features("USGS-7")[-1] != word_features("Nasa-2")[-1]


@given(st.text(st.characters(exclude_categories=()), max_size=60))  # lone surrogates too
def test_every_visible_character_is_part_of_one_word(text):
    covered = [at for start, end in hashed_words(text)[0] for at in range(start, end)]
    assert covered == [at for at, letter in enumerate(text) if not letter.isspace()]
