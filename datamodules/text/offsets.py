"""Character offsets of the paragraphs and sentences of a text."""

import re
from collections.abc import Sequence

from datamodules.text.language import language_of
from datamodules.text.lines import SURROGATE
from datamodules.text.sentences import split_sentences

Span = tuple[int, int]  # (start, end) in characters, end exclusive


def encodable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by U+FFFD; the length stays the same."""
    return SURROGATE.sub("\ufffd", text)


def paragraph_offsets(text: str) -> list[Span]:
    """Return the offsets of lines that are not blank, without surrounding white space."""
    lines = ((match.start(), match.group()) for match in re.finditer(r"[^\n]+", text))
    return [(a + len(line) - len(line.lstrip()), a + len(line.rstrip())) for a, line in lines if line.strip()]


def sentence_offsets(text: str, paragraphs: Sequence[Span] | None = None, language: str = "en") -> list[Span]:
    """Return the offsets of the sentences that `split_sentences` finds in each paragraph, by default in each line."""
    text, offsets, primary = encodable(text), [], language_of(language).primary
    for start, end in paragraph_offsets(text) if paragraphs is None else paragraphs:
        # The splitter changes only white space, so that visible characters can be counted.
        visible = [position for position in range(start, end) if not text[position].isspace()]
        used = 0
        for sentence in split_sentences(text[start:end], language=primary):
            size = len("".join(sentence.split()))
            if size and used < len(visible):
                offsets.append((visible[used], visible[min(used + size, len(visible)) - 1] + 1))
            used += size
    return offsets
