"""Similarity graph: cosines of the tf-idf vectors of paragraphs."""

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.graphs.graph import ParagraphGraph
from datamodules.graphs.paragraphs import Paragraphs
from datamodules.text.content_words import content_stems
from datamodules.text.term_vectors import cosines, term_counts


class Similarity(ParagraphGraph):
    """G[i][j] = cosine of the tf-idf vectors of paragraphs i and j (Li et al. 2020).

    Terms are the stems of content words. The weight of a term is tf (1 + ln((1 + L) / (1 + df))), where df is the
    number of the L paragraphs of the document that contain the term; no statistics of the corpus are used. A paragraph
    without terms has similarity 0 to all others.

    Args:
        scaled: divide by the largest weight between two different paragraphs of the document. Cosines of short
            paragraphs are small (0.08 on average for pairs of sentences of a news article), so that unscaled, the bias
            -(1 - G)^2 / (2 sigma^2) is nearly the same for all pairs.
    """

    name = "similarity"

    def __init__(self, scaled: bool = False) -> None:
        self.scaled = scaled

    def settings(self) -> dict[str, Any]:
        return {"scaled": True} if self.scaled else {}  # empty if false, as in caches of earlier versions

    def weights(self, paragraphs: Paragraphs) -> NDArray:
        cosine = self._cosines(paragraphs)
        return scaled_to_one(cosine) if self.scaled else cosine

    def _cosines(self, paragraphs: Paragraphs) -> NDArray:
        counts = term_counts([content_stems(" ".join(text), self.language) for text in paragraphs.texts])
        size = len(counts)
        idf = 1 + np.log((1 + size) / (1 + (counts > 0).sum(0)))
        return cosines(counts * idf)


class PermutedSimilarity(ParagraphGraph):
    """Similarity graph with randomly permuted paragraphs: the same weights, between the wrong paragraphs.

    The permutation depends only on the id of the document.

    Args:
        scaled: see `Similarity`.
    """

    name = "permuted similarity"

    def __init__(self, scaled: bool = True) -> None:
        self.similarity = Similarity(scaled)

    def settings(self) -> dict[str, Any]:
        return self.similarity.settings()

    def weights(self, paragraphs: Paragraphs) -> NDArray:
        weights = self.similarity.weights(paragraphs)
        places = list(range(len(weights)))
        random.Random(paragraphs.id).shuffle(places)
        return weights[np.ix_(places, places)]


def scaled_to_one(weights: NDArray) -> NDArray:
    """Scale weights [L, L] so that the largest off-diagonal one is 1 (unless all are 0), and set the diagonal to 1."""
    off_diagonal = weights * (1 - np.eye(len(weights)))
    largest = off_diagonal.max(initial=0)
    return (off_diagonal / largest if largest > 0 else off_diagonal) + np.eye(len(weights))
