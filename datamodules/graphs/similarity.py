"""Paragraphs that share words: cosines of their tf-idf vectors."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.graphs.graph import ParagraphGraph
from datamodules.graphs.paragraphs import Paragraphs
from datamodules.text.content_words import content_stems
from datamodules.text.term_vectors import cosines, term_counts


class Similarity(ParagraphGraph):
    """G[i][j] = cosine of the tf-idf vectors of paragraphs i and j (Li et al. 2020).

    Terms are stems of the words that are no function words. A term's weight is tf (1 + ln((1 + L) / (1 + df))), with
    df the number of the document's kept paragraphs that have it, of L: frequencies are those of the cluster, nothing is
    counted over a corpus. A paragraph without terms is similar to none.

    Args:
        scaled: divide by the largest weight between two different paragraphs of the document. Cosines between short
            paragraphs are small (0.08 on average for pairs of sentences of a news article), so that without it the bias
            -(1 - G)^2 / (2 sigma^2) is much the same for all of them.
    """

    name = "similarity"

    def __init__(self, scaled: bool = False) -> None:
        self.scaled = scaled

    def settings(self) -> dict[str, Any]:
        return {"scaled": True} if self.scaled else {}  # as it was before there was a choice

    def weights(self, paragraphs: Paragraphs) -> NDArray:
        cosine = self._cosines(paragraphs)
        return scaled_to_one(cosine) if self.scaled else cosine

    @staticmethod
    def _cosines(paragraphs: Paragraphs) -> NDArray:
        counts = term_counts([content_stems(" ".join(text)) for text in paragraphs.texts])
        size = len(counts)
        idf = 1 + np.log((1 + size) / (1 + (counts > 0).sum(0)))
        return cosines(counts * idf)


def scaled_to_one(weights: NDArray) -> NDArray:
    """Weights [L, L] whose largest one off the diagonal is 1; unchanged where all of those are 0. The diagonal is 1."""
    off_diagonal = weights * (1 - np.eye(len(weights)))
    largest = off_diagonal.max(initial=0)
    return (off_diagonal / largest if largest > 0 else off_diagonal) + np.eye(len(weights))
