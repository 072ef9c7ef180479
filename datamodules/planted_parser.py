"""Parser of the control corpus `PlantedTrees`."""

import hashlib
import random

from torch import Tensor

from datamodules.corpora.planted_trees import RELATIONS, VERSION, Task, planted_tree
from datamodules.discourse.distributions import Rows, tree_gamma, tree_ldd
from datamodules.discourse.parses import DiscourseParse, ParseRequest


class PlantedParser:
    """Parser of `PlantedTrees`: sentences are EDUs, and the distribution is over a few trees, one of which is planted.

    With one candidate, the planted tree has probability 1. With more, probabilities are uniform on the simplex, and the
    planted tree is drawn with these probabilities, so that the parser is calibrated.

    Args:
        task: task of the corpus.
        candidates: number of trees with positive probability.
        rows: which EDUs carry probability in the LDD, `side` or `nucleus`.
        band: half-width of the LDD band; documents have fewer sentences.
    """

    relations = RELATIONS

    def __init__(self, task: Task = "nucleus", candidates: int = 1, rows: Rows = "side", band: int = 128) -> None:
        if candidates < 1:
            raise ValueError(f"parser.candidates is at least 1, got {candidates}")
        self.task, self.candidates, self.rows, self.band = task, candidates, rows, band

    @property
    def fingerprint(self) -> str:
        """Digest of everything that parses depend on."""
        return f"planted {VERSION} {self.task} {self.candidates}"

    def predict_step(self, batch: list[ParseRequest], batch_idx: int = 0) -> list[DiscourseParse]:
        """Return the parse of each document."""
        return [self.parse(request) for request in batch]

    def parse(self, request: ParseRequest) -> DiscourseParse:
        """Return the parse of one document."""
        sentences = [request.text[start:end] for start, end in request.sentences]
        trees, weights = self.distribution(sentences)
        size = len(sentences)
        half = min(self.band, size - 1)
        pairs = [tree_ldd(tree, size, len(RELATIONS), self.rows, half) for tree in trees]
        band = sum(weight * ldd for weight, ldd in zip(weights, pairs))
        gamma = sum(weight * tree_gamma(tree, size, self.rows) for weight, tree in zip(weights, trees))
        best = max(range(len(trees)), key=weights.__getitem__)
        return DiscourseParse.of(request, request.sentences, RELATIONS, trees[best], band, self.rows, gamma)

    def distribution(self, sentences: list[str]) -> tuple[list[Tensor], list[float]]:
        """Return the candidate trees and their probabilities."""
        rng = random.Random(hashlib.sha256(f"weights {self.candidates} {sentences}".encode()).digest())
        draws = [rng.expovariate(1) for _ in range(self.candidates)]
        weights = [draw / sum(draws) for draw in draws]
        (planted,) = rng.choices(range(self.candidates), weights)
        # draw 0 is the tree that the reference follows: it takes position `planted`
        order = [0 if number == planted else number + 1 for number in range(self.candidates)]
        return [planted_tree(sentences, self.task, draw).nodes for draw in order], weights
