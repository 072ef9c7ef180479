"""Plain documents as a corpus to pre-train on: some of a document's own sentences are its reference."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

from datamodules.corpora.corpus import Corpus, make_document
from datamodules.documents import BadRecord, Record
from datamodules.text.gap_selection import Selection, select


class OwnSentences(Corpus):
    """Another corpus's documents, whole, each with sentences of its own for a reference.

    A model that generates learns from it to find and to copy: `lead` teaches that within some hundred steps, also where
    reference summaries are too few for a model from scratch to begin to read its documents. `GapSentenceData` does the
    same with the sentences taken out. Sentences are split and chosen while the corpus is read, on one process.

    Args:
        corpus: where documents come from; their references are not read.
        selection: which sentences: `lead`, `random`, or one of gap-sentence selection, see `gap_selection.select`.
        number: how many; all where a document has fewer. They stand in the document's order.

    Raises:
        ValueError: if there is no such selection, or the number is below 1.
    """

    def __init__(self, corpus: Corpus, selection: Selection = "lead", number: int = 1) -> None:
        if selection not in get_args(Selection):
            raise ValueError(f"corpus.selection is one of {', '.join(get_args(Selection))}; got {selection!r}")
        if number < 1:
            raise ValueError(f"corpus.number must be at least 1, got {number}")
        self.corpus, self.selection, self.number = corpus, selection, number

    def splits(self) -> list[str]:
        return self.corpus.splits()

    def records(self, split: str) -> Iterator[Record | BadRecord]:
        for record in self.corpus.records(split):
            document = make_document(record)
            yield record if isinstance(document, BadRecord) else self._with_own(record, document.parts)

    def fingerprint(self, split: str) -> str:
        return f"own sentences 1 {self.selection} {self.number} of {self.corpus.fingerprint(split)}"

    def _with_own(self, record: Record, parts: list[list[str]]) -> Record:
        sentences = [sentence for part in parts for sentence in part]
        # a draw belongs to its document, whatever stands before it
        chosen = select(sentences, self.number, self.selection, rng=random.Random(record.id))
        return replace(record, parts=parts, references=[[sentences[i] for i in chosen]])
