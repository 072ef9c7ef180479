import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamodules.text.printable import printable, printable_line


@pytest.mark.parametrize(
    "text, expected",
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b2J", r"\x9b2J"),  # the control character that is an escape sequence's beginning by itself
        ("over\rwritten \x08\x7f", r"over\rwritten \x08\x7f"),
        ("\u202etxt.exe\u2028", r"\u202etxt.exe\u2028"),
        ("Zürich – 東京 🧬 e\u0301", "Zürich – 東京 🧬 e\u0301"),
    ],
)
def test_what_a_terminal_would_obey_is_shown(text, expected):
    assert printable(text) == expected == printable_line(text)


@given(st.text())
def test_no_control_character_is_left(text):
    kept = {character for character in printable_line(text) if unicodedata.category(character) in ("Cc", "Zl", "Zp")}
    assert kept == set()
