"""Sentence splitting."""

import re
from itertools import accumulate
from typing import Literal

import regex

from datamodules.text.lines import encodable

Splitter = Literal["auto", "sentencex", "tokenized"]

# A stop that is a separate token, and closing marks after it.
_TOKEN_END = re.compile(r"(?:^|(?<= ))[.?!؟۔।॥]+(?: (?:''|'|\"|”|’|\)|\]|-rrb-|-RRB-)(?= |$))*(?: |$)")
_STOP_ALONE = re.compile(r"(?:^|(?<= ))[.?!]+(?= |$)")
_STOP_ATTACHED = regex.compile(r"(?<=[\w\p{M}\p{N}])[.?!؟۔।॥]+(?= |$)")

# Ends of sentences that `sentencex` lacks: stops that no space follows, also those of ASCII between Chinese or Japanese
# characters; and the spaces of Thai and Lao, which have no stops, except beside the repetition mark.
UNSPACED_ENDS = regex.compile(
    r"(?V1)[。！？｡។៕။]+[”’」』）》]*|(?<=[\p{Han}\p{Hiragana}\p{Katakana}）)])[.!?．](?=[\p{Han}\p{Hiragana}\p{Katakana}（(])|"
    r"(?<=[[\p{Thai}\p{Lao}]--[ๆໆ]]) (?=[[\p{Thai}\p{Lao}]--[ๆໆ]])"
)

# For each of these marks, sentencex may search the rest of the text for a closing one, or back for a space.
_SEARCHED = re.compile(r"[^\w\s\x00-\x7f]|[`!?]|(?<!\w)'")
_LONGEST_SEARCH = 200_000_000  # characters times marks, about one second; ten times those of long articles and stories
_WINDOW = 2_000  # characters of a window of longer searches


def split_sentences(text: str, splitter: Splitter = "auto", language: str = "en") -> list[str]:
    """Split a text into sentences, and normalize white space; a blank text has no sentences.

    Line breaks are white space, so text may be hard-wrapped; call it for each item of a list, as items lack stops.

    Args:
        text: a paragraph, or any text whose end also ends a sentence.
        splitter: `sentencex` (rules and abbreviations); `tokenized` for text with spaces between tokens, as in
            CNN/DailyMail after the PTB tokenizer ("he said . she left ."), which splitters of running text get wrong
            if it is also in lower case; `auto` detects which of the two applies.
        language: ISO 639 code of the language, for `sentencex` only.

    Raises:
        ValueError: if the splitter does not exist.
    """
    text = " ".join(text.split())
    if splitter == "auto":
        splitter = "tokenized" if _is_tokenized(text, language) else "sentencex"
    if splitter == "tokenized":
        pieces = _split_at(text, [match.end() for match in _TOKEN_END.finditer(text)])
    elif splitter == "sentencex":
        pieces = _split_at(text, _sentence_ends(text, language))
    else:
        raise ValueError(f"no sentence splitter {splitter!r}; choose auto, sentencex or tokenized")
    return [piece.strip() for piece in pieces if piece.strip()]


def _is_tokenized(text: str, language: str) -> bool:
    """Return whether at least half of the stops are separate tokens, as in tokenized text except in abbreviations."""
    stops = _STOP_ALONE.findall(text)
    # In French, running text has a space before ? and !, too.
    separate_stops = len(stops) if language != "fr" else sum("." in stop for stop in stops)
    return separate_stops > 0 and separate_stops >= len(_STOP_ATTACHED.findall(text))


def _sentence_ends(text: str, language: str) -> list[int]:
    """Return the offsets where all sentences but the last end; outside English also `UNSPACED_ENDS`, as in Chinese."""
    import sentencex  # only where texts are split

    is_slow = len(text) * len(_SEARCHED.findall(text)) > _LONGEST_SEARCH  # sentencex may scan it for each quote, ! or ?
    size = _WINDOW if is_slow else len(text)  # characters of each of the overlapping windows
    ends: list[int] = []
    start = 0
    while start < len(text):
        stop = min(start + size, len(text))
        boundaries = list(accumulate(map(len, sentencex.segment(language, encodable(text[start:stop]))), initial=start))
        # A window may end within a quote, and its sentences are then wrong from the beginning of the quote on. So the
        # next window begins at the first boundary in the second half of this one, or at its end if there is none.
        next_start = stop if stop == len(text) else next((end for end in boundaries if end >= start + size / 2), stop)
        ends += [end for end in boundaries if start < end <= next_start and end < stop]  # `stop` may be in a sentence
        start = next_start
    ends = [end for end in ends if " " in text[max(end - 1, 0) : end + 1]]  # beside a space, not in "torch.Tensor"
    if language == "en":
        return ends
    other_ends = {match.end() for match in UNSPACED_ENDS.finditer(text)}
    return sorted({*ends, *other_ends} - {len(text)})  # without the end of the last sentence


def _split_at(text: str, ends: list[int]) -> list[str]:  # the parts of the text between the offsets `ends`
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)])]
