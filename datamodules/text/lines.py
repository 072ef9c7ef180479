"""Texts on one line, for drawings and terminals."""


def one_line(text: str) -> str:
    """A text on one line, without characters that XML forbids or a terminal would obey."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())


def cut(text: str, width: int) -> str:
    """A text of at most so many characters, an ellipsis for what is left out."""
    return text if len(text) <= width else text[: width - 1] + "…"
