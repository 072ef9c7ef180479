"""Sentence splitting."""

import re
from collections.abc import Iterable
from typing import Literal

Splitter = Literal["auto", "sentencex", "tokenized"]

# A stop that is a separate token, and closing marks after it.
_TOKEN_END = re.compile(r"(?:^|(?<= ))[.?!]+(?: (?:''|'|\"|”|’|\)|\]|-rrb-|-RRB-)(?= |$))* ")
_STOP_ALONE = re.compile(r"(?:^|(?<= ))[.?!]+(?= |$)")
_STOP_ATTACHED = re.compile(r"(?<=\w)[.?!]+(?= |$)")


def split_sentences(text: str, splitter: Splitter = "auto") -> list[str]:
    """Split a text into sentences, and normalize white space; a blank text has no sentences.

    Line breaks count as white space, so text may be hard-wrapped; the items of a list should be split separately.

    Args:
        text: a paragraph, or any text whose end also ends a sentence.
        splitter: `sentencex` (rules and abbreviations); `tokenized` for text with spaces between tokens, as in
            CNN/DailyMail after the PTB tokenizer ("he said . she left ."), which splitters of running text get wrong
            if it is also in lower case; `auto` detects which of the two applies.

    Raises:
        ValueError: if the splitter does not exist.
    """
    text = " ".join(text.split())
    if splitter == "auto":
        splitter = "tokenized" if _is_tokenized(text) else "sentencex"
    if splitter == "tokenized":
        pieces = _split_at(text, [match.end() for match in _TOKEN_END.finditer(text)])
    elif splitter == "sentencex":
        import sentencex  # only where texts are split

        pieces = _rejoined(sentencex.segment("en", text))
    else:
        raise ValueError(f"no sentence splitter {splitter!r}; choose auto, sentencex or tokenized")
    return [piece.strip() for piece in pieces if piece.strip()]


def _is_tokenized(text: str) -> bool:
    """Return whether most stops are separate tokens (not those of abbreviations, even in tokenized text)."""
    separate_stops = len(_STOP_ALONE.findall(text))
    return separate_stops > 0 and separate_stops >= len(_STOP_ATTACHED.findall(text))


def _rejoined(pieces: Iterable[str]) -> list[str]:
    """Join pieces that are not separated by a space: "torch.Tensor" contains no end of a sentence."""
    sentences: list[str] = []
    for piece in pieces:
        if sentences and not sentences[-1].endswith(" ") and not piece.startswith(" "):
            sentences[-1] += piece
        else:
            sentences.append(piece)
    return sentences


def _split_at(text: str, ends: list[int]) -> list[str]:
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)])]
