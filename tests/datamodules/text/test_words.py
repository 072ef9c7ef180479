import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamodules.text.words import detokenize, sentences_of, tokenize


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop.", ["don't", "stop", "."]),
        ("re-use torch.nn at 9:00, 10/30/01", ["re-use", "torch.nn", "at", "9:00", ",", "10/30/01"]),
        ('He said "yes" (twice)!', ["he", "said", '"', "yes", '"', "(", "twice", ")", "!"]),
        ("a_b e.g. x", ["a_b", "e.g", ".", "x"]),
        ("Ünïcode 日本 ©", ["ünïcode", "日本", "©"]),
        (" \t\n ", []),
    ],
)
def test_words_keep_inner_punctuation_and_separate_the_rest(text, words):
    assert tokenize(text) == words


def test_case_and_whitespace_tokenizer():
    assert tokenize("The CAT", lowercase=False) == ["The", "CAT"]
    assert tokenize("it 's `` fine '' .", "whitespace") == ["it", "'s", "``", "fine", "''", "."]


@given(st.text(max_size=200))
def test_no_visible_character_is_lost(text):
    assert "".join(tokenize(text, lowercase=False)) == "".join(text.split())


@pytest.mark.parametrize(
    "text",
    ['he said "yes" (twice)!', "a, b; c: d.", "cost: $5 and 10%", "`x` and `y`", "what? no!", "[one] {two}"],
)
def test_detokenize_undoes_tokenize_on_ordinary_writing(text):
    assert detokenize(tokenize(text)) == text


def test_sentences_end_at_end_punctuation():
    assert sentences_of(["a", ".", "b", "?", "c"]) == [["a", "."], ["b", "?"], ["c"]]
    assert sentences_of([".", "."]) == [["."], ["."]]
    assert sentences_of([]) == []
