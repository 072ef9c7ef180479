"""Text into sentences."""

import re
from collections.abc import Iterable
from typing import Literal

import sentencex

Splitter = Literal["auto", "sentencex", "tokenized"]

# A stop that is a token of its own, and what may close a sentence behind it.
_TOKEN_END = re.compile(r"(?:^|(?<= ))[.?!]+(?: (?:''|'|\"|”|’|\)|\]|-rrb-|-RRB-)(?= |$))* ")
_STOP_ALONE = re.compile(r"(?:^|(?<= ))[.?!]+(?= |$)")
_STOP_ATTACHED = re.compile(r"(?<=\w)[.?!]+(?= |$)")


def split_sentences(text: str, splitter: Splitter = "auto") -> list[str]:
    """The sentences of a text, whitespace within each reduced to single spaces; none of a text without words.

    Line breaks are whitespace: hard-wrapped text is fine, a list should come line by line.

    Args:
        text: a paragraph, or any piece of text whose end ends a sentence.
        splitter: `sentencex` (rules and abbreviations); `tokenized` for text whose tokens stand between spaces, as
            in CNN/DailyMail after the PTB tokenizer ("he said . she left ."), which every splitter for running text
            gets wrong once it is lower-cased too; `auto` looks which of the two the text is.

    Raises:
        ValueError: if there is no such splitter.
    """
    text = " ".join(text.split())
    if splitter == "auto":
        splitter = "tokenized" if _is_tokenized(text) else "sentencex"
    if splitter == "tokenized":
        pieces = _cut(text, [match.end() for match in _TOKEN_END.finditer(text)])
    elif splitter == "sentencex":
        pieces = _rejoined(sentencex.segment("en", text))
    else:
        raise ValueError(f"no sentence splitter {splitter!r}; there are auto, sentencex, tokenized")
    return [piece.strip() for piece in pieces if piece.strip()]


def _is_tokenized(text: str) -> bool:
    """Whether most stops are tokens of their own (abbreviations keep theirs in tokenized text too)."""
    alone = len(_STOP_ALONE.findall(text))
    return alone > 0 and alone >= len(_STOP_ATTACHED.findall(text))


def _rejoined(pieces: Iterable[str]) -> list[str]:
    """Pieces put together where no space stands between them: "torch.Tensor" holds no end of a sentence."""
    whole: list[str] = []
    for piece in pieces:
        if whole and not whole[-1].endswith(" ") and not piece.startswith(" "):
            whole[-1] += piece
        else:
            whole.append(piece)
    return whole


def _cut(text: str, ends: list[int]) -> list[str]:
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)])]
