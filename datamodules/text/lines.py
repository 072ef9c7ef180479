"""Lines: texts on one line for drawings and terminals, records on one line for files."""

import json
import re
from typing import Any

# JSON allows them inside of a string, but `str.splitlines` and many editors end a line there.
_SEPARATORS = {ord(letter): f"\\u{ord(letter):04x}" for letter in "\x85\u2028\u2029"}


def json_line(record: Any) -> str:
    """Return a record as a line of a JSON Lines file, with its line feed and no other line separator in it."""
    return json.dumps(record, ensure_ascii=False).translate(_SEPARATORS) + "\n"


def split_lines(text: str) -> list[str]:
    """Return the lines of a text; line feeds and carriage returns end one, and nothing else.

    `str.splitlines` also divides at form feeds, U+0085, U+2028 and U+2029, which stand inside of sentences.
    """
    lines = re.split(r"\r\n|\r|\n", text)
    return lines if lines[-1] else lines[:-1]


def one_line(text: str) -> str:
    """A text on one line, without characters that XML forbids or a terminal would obey."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())


def cut(text: str, width: int) -> str:
    """A text of at most so many characters, an ellipsis for what is left out."""
    return text if len(text) <= width else text[: width - 1] + "…"
