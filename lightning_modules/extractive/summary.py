"""Extractive summaries."""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from torch import Tensor

from lightning_modules.extractive.selection import Relations, SelectionOptions, chosen_sentences
from lightning_modules.summary import Summary


@dataclass
class ExtractiveSummary(Summary):
    """A summary of sentences of the document."""

    positions: list[int] = field(default_factory=list)  # indices of its sentences in the document, in summary order
    sentence_scores: list[float] = field(default_factory=list)  # scores of all sentences of the document
    document: list[str] = field(default_factory=list)  # sentences of the document; not part of the record
    attention: np.ndarray | None = None  # between the L sentences, [L, L], if requested; not part of the record

    @classmethod
    def of(
        cls, name: str, references: list[list[str]], document: list[str], positions: list[int], scores: list[float]
    ) -> Self:
        """Return the summary, of id `name`, with the sentences of `document` at `positions`; scores may be padded."""
        sentences = [document[index] for index in positions]
        scores = scores[: len(document)]
        return cls(name, sentences, references, positions=positions, sentence_scores=scores, document=document)

    @property
    def selected(self) -> list[tuple[int, str, float]]:
        """Position, text and score of each selected sentence, in the order of the summary."""
        return [(index, self.document[index], self.sentence_scores[index]) for index in self.positions]

    def record(self) -> dict[str, Any]:
        """Return the record of the summary for predictions.jsonl."""
        return super().record() | {
            "positions": self.positions,
            "sentence_scores": [round(score, 6) for score in self.sentence_scores],
        }


def extract(
    ids: list[str],
    references: list[list[list[str]]],
    documents: list[list[str]],
    scores: Tensor,
    candidates: Tensor,
    relations: Relations | None,
    options: SelectionOptions,
) -> list[ExtractiveSummary]:
    """Return extractive summaries of B documents with `ids`: sentences selected by padded scores, [B, L]; see `select`.

    `candidates` is True at sentences that may be selected, [B, L]; `relations` may be None for the selector `top_k`.
    """
    selected = chosen_sentences(documents, scores, candidates, relations, options)
    return list(map(ExtractiveSummary.of, ids, references, documents, selected, scores.tolist()))
