"""`Document`: the one record that every corpus becomes, and what goes wrong on the way there."""

from dataclasses import dataclass, field

# What to do about a record that cannot be read.
OR_SKIP = (
    "or pass `--data.on_bad_record skip` (`--on_bad_record skip` where no data is given) to leave such records out"
)
MEND_OR_SKIP = f"mend it, {OR_SKIP}"


class CorpusError(ValueError):
    """A corpus that cannot be used: one line with what is wrong, where, and what to do."""


@dataclass(frozen=True)
class Document:
    """What is to be summarized, and its summaries.

    Attributes:
        id: unique within the corpus's split.
        parts: paragraphs of one document, or several source documents; each a list of sentences.
        references: reference summaries, each a list of sentences; empty where a split has none.
    """

    id: str
    parts: list[list[str]]
    references: list[list[str]] = field(default_factory=list)

    @property
    def sentences(self) -> list[str]:
        """The sentences of all parts, in order."""
        return [sentence for part in self.parts for sentence in part]

    @property
    def reference(self) -> list[str]:
        """The first reference, which the loss reads; empty if there is none."""
        return self.references[0] if self.references else []

    @property
    def text(self) -> str:
        """The whole document: sentences joined by a space, parts by a blank line."""
        return "\n\n".join(" ".join(part) for part in self.parts)

    @property
    def sentence_ends(self) -> list[int]:
        """Where each sentence ends in `text`, in characters."""
        ends, at = [], 0
        for part in self.parts:
            for sentence in part:
                at += len(sentence)
                ends.append(at)
                at += 1  # a space
            at += 1  # parts stand two line ends apart
        return ends


@dataclass(frozen=True)
class Record:
    """A document as its source gives it: text that may still have to be split into sentences.

    Attributes:
        id: unique within the split.
        parts: a text a paragraph or source document, or its sentences where the source has them.
        references: a text a reference, or its sentences.
        where: file and line, or another place that a person can look up.
    """

    id: str
    parts: list[str | list[str]]
    references: list[str | list[str]]
    where: str


@dataclass(frozen=True)
class BadRecord:
    """A record that cannot become a document.

    Attributes:
        where: file and line, or dataset and row; with the id if it has one.
        problem: what is wrong with it.
        remedy: what to do.
    """

    where: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}; {self.remedy}"
