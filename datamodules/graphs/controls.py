"""Graphs that say nothing, to compare a graph with."""

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.graphs.graph import ParagraphGraph
from datamodules.graphs.paragraphs import Paragraphs
from datamodules.graphs.similarity import Similarity


class Identity(ParagraphGraph):
    """Each paragraph is related to itself alone."""

    name = "identity"

    def weights(self, paragraphs: Paragraphs) -> NDArray:
        return np.eye(len(paragraphs))


class PermutedSimilarity(ParagraphGraph):
    """The graph of similarity, its paragraphs permuted within the document: matched in every value, wrong in where they
    stand. The draw is a function of the document's id.

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
