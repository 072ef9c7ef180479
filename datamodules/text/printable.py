"""Text of unknown origin on a terminal."""

import re

# Escape sequences begin with a control character; marks of direction show text in another order than it has.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_LINE_BREAK = re.compile("[\n\t]")


def printable(text: str) -> str:
    r"""Return the text with `\x1b` and the like in the place of what a terminal would obey; line ends and tabs stay."""
    return _CONTROL.sub(_escape, text)


def printable_line(text: str) -> str:
    """Return the text as `printable` does, and its line ends and tabs escaped, too."""
    return _LINE_BREAK.sub(_escape, printable(text))


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
