"""Lines of text files, and texts that are safe to print."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamodules.text.lines import counted, json_line, printable, printable_line, split_lines

SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"


@given(st.text())
def test_a_record_is_one_line_for_every_reader(text):
    line = json_line({"id": text})
    assert json.loads(line) == {"id": text}
    assert len(line.splitlines()) == 1 and line.endswith("\n")


def test_only_feeds_and_returns_end_a_line():
    assert split_lines(f"a{SEPARATORS}b\nc\r\nd\re\n\nf") == [f"a{SEPARATORS}b", "c", "d", "e", "", "f"]
    assert split_lines("a\n") == ["a"] and split_lines("") == []


def test_nouns_agree_with_their_numbers():
    numbers = [counted(count, noun) for count, noun in ((0, "entry"), (1, "document"), (1200, "batch"))]
    assert numbers == ["0 entries", "1 document", "1,200 batches"]


@pytest.mark.parametrize("text, expected", [
    ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
    ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
    ("\x9b2J", r"\x9b2J"),  # the control character that is an escape sequence's beginning by itself
    ("over\rwritten \x08\x7f", r"over\rwritten \x08\x7f"),
    ("\u202etxt.exe\u2028", r"\u202etxt.exe\u2028"),
    ("Zürich – 東京 🧬 e\u0301", "Zürich – 東京 🧬 e\u0301"),
])  # fmt: skip
def test_what_a_terminal_would_obey_is_shown(text, expected):
    assert printable(text) == expected == printable_line(text)


@given(st.text())
def test_no_control_character_is_left(text):
    assert not {unicodedata.category(character) for character in printable_line(text)} & {"Cc", "Zl", "Zp"}
