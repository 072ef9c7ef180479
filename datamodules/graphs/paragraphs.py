"""Paragraphs of a document as the nodes of a graph, and their selection if there are too many."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from datamodules.documents import Document

Parts = Literal["paragraphs", "sources"]
Keep = Literal["first", "turns", "spread"]


@dataclass(frozen=True)
class Paragraphs:
    """The L selected paragraphs of a document, in order.

    A document without words has one paragraph without sentences, so that L is at least 1.
    """

    document: Document  # the document
    texts: list[list[str]]  # sentences of each paragraph
    spans: list[tuple[int, int]]  # range (start, end) of each paragraph in `Document.sentences`
    parts: list[int]  # index of the part of the document that each paragraph belongs to
    separate: bool  # whether parts are source documents, rather than paragraphs of one document
    total: int  # number of paragraphs with words before the selection
    empty: int  # number of parts without words, which are left out

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def id(self) -> str:
        """Id of the document."""
        return self.document.id

    @property
    def dropped(self) -> int:
        """Number of paragraphs that were not selected."""
        return self.total - sum(map(bool, self.texts))  # a paragraph without sentences is not in `total`

    def follows(self, index: int) -> bool:
        """Return whether a paragraph directly follows the one before it, in the same source document."""
        if index == 0 or not self.texts[index]:
            return False
        same_source = not self.separate or self.parts[index] == self.parts[index - 1]
        return same_source and self.spans[index][0] == self.spans[index - 1][1]  # no sentence between them


@dataclass(frozen=True)
class ParagraphRule:
    """Definition and selection of the paragraphs of a document.

    Parts without words are left out. Duplicate paragraphs are kept, because agreement of sources is informative.

    Args:
        max_paragraphs: maximum number of paragraphs L.
        sentences: split every part into groups of this many sentences (the last may be smaller); None takes each part
            as a paragraph. For corpora without paragraph breaks, and for long source documents.
        parts: whether the parts of a document are its `paragraphs`, or separate source documents (`sources`).
        keep: selection if there are too many paragraphs: the `first`; one of each part in `turns` (the first of all
            parts, then the second of all parts, ...); or `spread` evenly over the document, including its first and
            last paragraph. The order of the document is kept.

    Raises:
        ValueError: if a number is below 1, or an argument has an invalid value.
    """

    max_paragraphs: int = 30
    sentences: int | None = None
    parts: Parts = "paragraphs"
    keep: Keep = "first"

    def __post_init__(self) -> None:
        for name in ("max_paragraphs", "sentences"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        for name, kind in (("parts", Parts), ("keep", Keep)):
            value, choices = getattr(self, name), get_args(kind)
            if value not in choices:
                raise ValueError(f"{name} {value!r} is not one of {', '.join(choices)}; choose one")

    def __call__(self, document: Document) -> Paragraphs:
        """Return the selected paragraphs of a document; a document without words has one without sentences."""
        spans: list[tuple[int, int]] = []  # range of sentences of each paragraph, before the selection
        parts: list[int] = []  # index of the part of each paragraph; `self.parts` is an option
        num_empty = 0
        first_sentence = 0  # of the current part
        for number, part in enumerate(document.parts):
            groups = [(first_sentence + start, first_sentence + end) for start, end in self._groups(part)]  # paragraphs
            if not groups:  # the part is blank
                num_empty += 1
            spans += groups
            parts += [number] * len(groups)
            first_sentence += len(part)
        selected = self._selected(parts)
        sentences = document.sentences
        return Paragraphs(
            document=document,
            texts=[sentences[slice(*spans[i])] for i in selected] or [[]],
            spans=[spans[i] for i in selected] or [(0, 0)],
            parts=[parts[i] for i in selected] or [0],
            separate=self.parts == "sources",
            total=len(spans),
            empty=num_empty,
        )

    def _groups(self, part: list[str]) -> list[tuple[int, int]]:
        """Return the ranges (start, end) of sentences of the paragraphs of a part, without blank paragraphs."""
        step = self.sentences or max(1, len(part))  # the whole part by default; `range` needs at least 1
        groups = [(start, min(start + step, len(part))) for start in range(0, len(part), step)]
        return [(start, end) for start, end in groups if any(sentence.strip() for sentence in part[start:end])]

    def _selected(self, parts: Sequence[int]) -> list[int]:
        """Return the indices of the selected paragraphs (see `keep`) in order, from the index of each one's part."""
        size, limit = len(parts), self.max_paragraphs
        if size <= limit or self.keep == "first":
            return list(range(min(size, limit)))
        if self.keep == "spread":  # evenly from 0 to size - 1; a limit of 1 selects the first
            return [round(index * (size - 1) / max(1, limit - 1)) for index in range(limit)]
        num_in_part = Counter()
        turns = []  # index of each paragraph within its part, by which it is selected
        for part in parts:
            turns.append(num_in_part[part])
            num_in_part[part] += 1
        in_turns = sorted(range(size), key=lambda index: (turns[index], index))  # the first of each part come first
        return sorted(in_turns[:limit])
