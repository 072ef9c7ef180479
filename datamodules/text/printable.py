"""Safe output of untrusted text on a terminal."""

import re

# Escape sequences begin with a control character, bidirectional marks reorder the displayed text, and halves of
# surrogate pairs cannot be encoded.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_LINE_BREAK = re.compile("[\n\t]")


def printable(text: str) -> str:
    r"""Replace control characters by escapes such as `\x1b`; line ends and tabs stay."""
    return _CONTROL.sub(_escape, text)


def printable_line(text: str) -> str:
    """Like `printable`, but escape line ends and tabs as well."""
    return _LINE_BREAK.sub(_escape, printable(text))


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
