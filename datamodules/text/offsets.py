"""Where the paragraphs and sentences of a text stand."""

import re

from datamodules.text.sentences import Splitter, split_sentences

Span = tuple[int, int]  # first character, and the one behind the last
_SURROGATE = re.compile("[\ud800-\udfff]")


def encodable(text: str) -> str:
    """A text of the same length that can be UTF-8: half characters (lone surrogates) become U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def paragraph_offsets(text: str) -> list[Span]:
    """Lines that are not blank, without the spaces around them."""
    found = ((match.start(), match.group()) for match in re.finditer(r"[^\n]+", text))
    return [(a + len(line) - len(line.lstrip()), a + len(line.rstrip())) for a, line in found if line.strip()]


def sentence_offsets(text: str, paragraphs: list[Span] | None = None, splitter: Splitter = "auto") -> list[Span]:
    """The sentences that `split_sentences` finds in each paragraph, as characters of the text.

    Args:
        text: any text.
        paragraphs: its paragraphs, whose ends end a sentence; its lines if not given.
        splitter: as in `split_sentences`.
    """
    text, found = encodable(text), []
    for start, end in paragraph_offsets(text) if paragraphs is None else paragraphs:
        # the splitter changes nothing but white space: a sentence is so many visible characters
        visible = [at for at in range(start, end) if not text[at].isspace()]
        used = 0
        for sentence in split_sentences(text[start:end], splitter):
            size = len("".join(sentence.split()))
            if size and used < len(visible):
                found.append((visible[used], visible[min(used + size, len(visible)) - 1] + 1))
            used += size
    return found
