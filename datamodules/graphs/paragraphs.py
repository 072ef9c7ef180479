"""From a `Document` to the paragraphs that are a graph's nodes, and which of too many are kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

from datamodules.documents import Document

Parts = Literal["paragraphs", "sources"]
Keep = Literal["first", "turns", "spread"]


@dataclass(frozen=True)
class Paragraphs:
    """The paragraphs of a document that are kept, L of them, in the document's order.

    A document without a word has one paragraph without sentences: L is at least 1.

    Attributes:
        document: where they come from.
        texts: sentences of each paragraph.
        spans: which sentences those are, [start, end) into `Document.sentences`.
        parts: which part of the document each comes from.
        separate: whether parts are source documents, rather than paragraphs of one.
        total: how many paragraphs with words there were.
        empty: how many parts without words were passed over.
    """

    document: Document
    texts: list[list[str]]
    spans: list[tuple[int, int]]
    parts: list[int]
    separate: bool
    total: int
    empty: int

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def id(self) -> str:
        """Of the document."""
        return self.document.id

    @property
    def dropped(self) -> int:
        """How many paragraphs were left out because there are too many."""
        return self.total - sum(map(bool, self.texts))

    def follows(self, place: int) -> bool:
        """Whether a paragraph goes on where the one before it ended: nothing was left out between the two, and they are
        not of different source documents."""
        if place < 1 or not self.texts[place]:
            return False
        together = not self.separate or self.parts[place] == self.parts[place - 1]
        return together and self.spans[place][0] == self.spans[place - 1][1]


@dataclass(frozen=True)
class ParagraphRule:
    """What the paragraphs of a document are, and which are kept.

    Parts without words are passed over. Identical paragraphs stay: that several sources say the same is worth knowing.

    Args:
        max_paragraphs: L at most.
        sentences: cut every part into groups of so many sentences, the last of them perhaps smaller; None takes parts
            as they are. For corpora without paragraph breaks, and source documents longer than a paragraph.
        parts: whether the parts of a document are its `paragraphs`, or `sources` of their own, which do not go on in
            each other.
        keep: which paragraphs are kept where there are more: the `first`; one of each part in `turns` (first all parts'
            first, then all their second ...) until there are enough; or as many `spread` evenly over the document, its
            first and last included. What is kept stays in the document's order.

    Raises:
        ValueError: if a number is below 1, or an argument has none of its values.
    """

    max_paragraphs: int = 30
    sentences: int | None = None
    parts: Parts = "paragraphs"
    keep: Keep = "first"

    def __post_init__(self) -> None:
        for name in ("max_paragraphs", "sentences"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} {value}: at least 1")
        for name, kind in (("parts", Parts), ("keep", Keep)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name} {getattr(self, name)!r} is none of {', '.join(get_args(kind))}; choose one")

    def __call__(self, document: Document) -> Paragraphs:
        """The paragraphs of a document."""
        spans, parts, empty, at = [], [], 0, 0
        for number, part in enumerate(document.parts):
            found = [(at + start, at + end) for start, end in self._groups(part)]
            empty += not found
            spans += found
            parts += [number] * len(found)
            at += len(part)
        kept = self._kept(parts)
        sentences = document.sentences
        return Paragraphs(
            document,
            [sentences[spans[i][0] : spans[i][1]] for i in kept] or [[]],
            [spans[i] for i in kept] or [(0, 0)],
            [parts[i] for i in kept] or [0],
            self.parts == "sources",
            len(spans),
            empty,
        )

    def _groups(self, part: list[str]) -> list[tuple[int, int]]:
        """[start, end) of a part's paragraphs, those without words left out."""
        step = self.sentences or max(1, len(part))
        groups = [(start, min(start + step, len(part))) for start in range(0, len(part), step)]
        return [(start, end) for start, end in groups if any(sentence.strip() for sentence in part[start:end])]

    def _kept(self, parts: Sequence[int]) -> list[int]:
        """Which paragraphs are kept, in order.

        Args:
            parts: part of each paragraph.
        """
        size, most = len(parts), self.max_paragraphs
        if size <= most or self.keep == "first":
            return list(range(min(size, most)))
        if self.keep == "spread":
            return [round(place * (size - 1) / max(1, most - 1)) for place in range(most)]
        turns, last = [], [0, *(i for i, (a, b) in enumerate(pairwise(parts), 1) if a != b)]
        start = 0
        for place in range(size):
            start = place if place in last else start
            turns.append(place - start)
        return sorted(sorted(range(size), key=lambda place: (turns[place], place))[:most])
