"""Character offsets of the paragraphs and sentences of a text."""

import re
from collections.abc import Sequence

from datamodules.text.language import language_of
from datamodules.text.sentences import split_sentences

Span = tuple[int, int]  # (start, end) in characters, end exclusive


def paragraph_offsets(text: str) -> list[Span]:
    """Return the (start, end) of each line that is not blank, without surrounding white space."""
    return [match.span() for match in re.finditer(r"\S(?:.*\S)?", text)]  # from the first to the last visible character


def sentence_offsets(text: str, paragraphs: Sequence[Span] | None = None, language: str = "en") -> list[Span]:
    """Return the offsets of the sentences by `split_sentences` in each paragraph; without paragraphs, in each line."""
    primary = language_of(language).primary  # the ISO 639 code without region and segmenter, for `split_sentences`
    offsets = []
    for start, end in paragraph_offsets(text) if paragraphs is None else paragraphs:
        # The splitter changes only white space, so visible characters are counted to align its sentences with the text.
        visible = [position for position in range(start, end) if not text[position].isspace()]
        num_before = 0  # visible characters before the sentence
        for sentence in split_sentences(text[start:end], language=primary):
            size = len("".join(sentence.split()))  # visible characters
            offsets.append((visible[num_before], visible[num_before + size - 1] + 1))
            num_before += size
    return offsets
