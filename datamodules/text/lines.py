"""Single-line and untrusted texts for figures and terminals, and records on one line for files."""

import json
import os
import re
import unicodedata
from typing import Any

from rich.cells import cell_len, chop_cells

# Allowed in JSON strings, but line separators for `str.splitlines` and many editors.
_SEPARATORS = {ord(letter): f"\\u{ord(letter):04x}" for letter in "\x85\u2028\u2029"}

# Escape sequences begin with a control character, bidirectional marks reorder the displayed text, and halves of
# surrogate pairs cannot be encoded.
_CONTROL = re.compile("[\0-\b\v-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
SURROGATE = re.compile("[\ud800-\udfff]")


def encodable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by U+FFFD; the length stays the same."""
    return SURROGATE.sub("\ufffd", text)


def json_line(record: Any) -> str:
    """Return a record as a line of a JSON Lines file, with a line feed and no other line separator."""
    return json.dumps(record, ensure_ascii=False).translate(_SEPARATORS) + "\n"


def load_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; raise ValueError if it is not JSON, or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def split_lines(text: str) -> list[str]:
    """Split a text at line feeds and carriage returns, not at the rare separators of `str.splitlines` in sentences."""
    lines = re.split(r"\r\n|\r|\n", text)
    return lines if lines[-1] else lines[:-1]


def is_blank(text: str) -> bool:
    """Return whether a text has only white space, controls (Unicode category Cc) and invisible format marks (Cf)."""
    return all(letter.isspace() or unicodedata.category(letter) in ("Cc", "Cf") for letter in text)


def lone_surrogate(text: str) -> str | None:
    """Return the code, such as U+D800, of the first lone surrogate, which UTF-8 cannot encode; None without one."""
    match = SURROGATE.search(text)
    return f"U+{ord(match[0]):X}" if match else None


def readable_name(name: str) -> str:
    """Return the name of a file; bytes that are not UTF-8 become escapes, such as `caf\\xe9.txt`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def one_line(text: str) -> str:
    """Return a text on one line, without control characters, which XML forbids and terminals interpret."""
    return _CONTROL.sub("", " ".join(text.split()))  # joiners stay: Persian and emoji are spelled with them


def isolated(text: str) -> str:
    """Mark a text with Hebrew or Arabic letters so that what stands before it on its line does not reorder it."""
    is_right_to_left = any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in text)
    return f"\u2068{text}" if is_right_to_left else text  # FIRST STRONG ISOLATE, up to the end of the line


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: 1 document, 2,000 documents, 2 summaries, 2 batches."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def shorten(text: str, width: int) -> str:
    """Return at most `width` columns of a text, two for a Chinese character, with an ellipsis if it is longer."""
    return text if cell_len(text) <= width else chop_cells(text, width - 1)[0] + "…"


def printable(text: str) -> str:
    r"""Replace control characters by escapes such as `\x1b`; line ends and tabs stay."""
    return _CONTROL.sub(_escape, text)


def printable_line(text: str) -> str:
    """Like `printable`, but escape line ends and tabs as well."""
    return re.sub("[\n\t]", _escape, printable(text))


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
