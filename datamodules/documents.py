"""`Document`: common record of all corpora, and errors of corpora."""

from dataclasses import dataclass, field

# What to do about a record that cannot be read.
OR_SKIP = "or leave such records out with `--on_bad_record skip` (of fit and test: `--data.on_bad_record skip`)"
FIX_OR_SKIP = f"fix it, {OR_SKIP}"


class UserError(ValueError):
    """Error that a user can mend: one line with problem, place and remedy."""


@dataclass(frozen=True)
class Document:
    """A document or set of documents to summarize, with its reference summaries."""

    id: str  # id, unique within a split
    parts: list[list[str]]  # paragraphs of one document, or several source documents; each a list of sentences
    references: list[list[str]] = field(default_factory=list)  # reference summaries, each a list of sentences

    @property
    def sentences(self) -> list[str]:
        """Sentences of all parts, in order."""
        return [sentence for part in self.parts for sentence in part]

    @property
    def reference(self) -> list[str]:
        """The sentences of the first reference, which the loss reads; empty if there is none."""
        return self.references[0] if self.references else []

    @property
    def text(self) -> str:
        """Text of the document: sentences joined by spaces, parts by blank lines."""
        return "\n\n".join(" ".join(part) for part in self.parts)

    @property
    def sentence_ends(self) -> list[int]:
        """End of each sentence in characters of `text`."""
        ends, position = [], 0
        for part in self.parts:
            for sentence in part:
                position += len(sentence)
                ends.append(position)
                position += 1  # the space after the sentence
            position += 1 if part else 2  # to the next part, after "\n\n"; the last sentence has added 1
        return ends


@dataclass(frozen=True)
class Record:
    """A raw record of a corpus, whose texts may not be split into sentences yet."""

    id: str  # id, unique within a split
    parts: list[str | list[str]]  # paragraphs or source documents, each a text or a list of sentences
    references: list[str | list[str]]  # references, each a text or a list of sentences
    where: str  # file and line, or another location, for messages
    cleaned: dict[str, int] = field(default_factory=dict)  # numbers of removed marks, by rule of `corpora.fields`


@dataclass(frozen=True)
class BadRecord:
    """A record that cannot become a document."""

    where: str  # file and line, or dataset and row, with the id if there is one
    problem: str  # description of the problem
    remedy: str  # what to do

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}; {self.remedy}"
