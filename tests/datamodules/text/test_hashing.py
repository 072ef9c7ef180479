import zlib

from hypothesis import given
from hypothesis import strategies as st

from datamodules.text.hashing import FEATURES, hashed_words, word_features


def test_words_and_marks():
    text = "Don’t stop -- Rev-2... it's 3.5!"
    offsets = hashed_words(text).offsets
    words = ["Don’t", "stop", "--", "Rev", "-", "2", "...", "it's", "3", ".", "5", "!"]
    assert [text[a:b] for a, b in offsets] == words


def test_the_features_of_a_word():
    names = ["wrunning", "p1r", "p2ru", "p3run", "p4runn", "s1g", "s2ng", "s3ing", "s4ning", "hXxx"]
    assert word_features("Running") == tuple(zlib.crc32(name.encode()) for name in names)
    assert len(names) == FEATURES
    assert word_features("NASA-2")[-1] == word_features("USGS-7")[-1] != word_features("Nasa-2")[-1]


@given(st.text(st.characters(exclude_categories=()), max_size=60))  # lone surrogates too
def test_every_visible_character_is_part_of_one_word(text):
    covered = [at for start, end in hashed_words(text).offsets for at in range(start, end)]
    assert covered == [at for at, letter in enumerate(text) if not letter.isspace()]
