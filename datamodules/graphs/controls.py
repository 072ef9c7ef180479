"""Uninformative graphs, for comparison."""

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.graphs.graph import ParagraphGraph
from datamodules.graphs.paragraphs import Paragraphs
from datamodules.graphs.similarity import Similarity


class Identity(ParagraphGraph):
    """Graph in which each paragraph is related only to itself."""

    name = "identity"

    def weights(self, paragraphs: Paragraphs) -> NDArray:
        return np.eye(len(paragraphs))


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
