"""Parser of the control corpus `PlantedTrees`."""

import hashlib
import random

from torch import Tensor

from datamodules.discourse.distributions import Rows, tree_gamma, tree_ldd
from datamodules.discourse.parses import DiscourseParse, ParseRequest
from experiments.studies.controls.tasks.planted_trees import RELATIONS, VERSION, Task, planted_tree


class PlantedParser:
    """Parser of `PlantedTrees`: sentences are EDUs, and the distribution is over a few trees, one of which is planted.

    With one candidate, the planted tree has probability 1. With more, their probabilities have a symmetric Dirichlet
    distribution and the planted tree is drawn with them, so that the parser is calibrated. Candidates are unrelated
    trees unless `agreement` is given: then, with that probability, a candidate's target is the sentence that all
    candidates share, otherwise another sentence.

    Args:
        task: task of the corpus.
        candidates: number of trees with positive probability.
        agreement: probability that a candidate has the shared target; None for unrelated candidates.
        concentration: parameter of the Dirichlet distribution; 1 is uniform on the simplex, and with large values the
            best tree is hardly more probable than others.
        rows: which EDUs count in the LDD: all in a node's nucleus (`side`), or only nuclei of their parent (`nucleus`).
        band: half-width of the LDD band; documents have fewer sentences.

    Raises:
        ValueError: if there is no candidate, the agreement is no probability, or the concentration is not positive.
    """

    relations = RELATIONS

    def __init__(
        self,
        task: Task = "nucleus",
        candidates: int = 1,
        agreement: float | None = None,
        concentration: float = 1.0,
        rows: Rows = "side",
        band: int = 128,
    ) -> None:
        if candidates < 1:
            raise ValueError(f"parser.candidates is at least 1, got {candidates}")
        if agreement is not None and not 0 <= agreement <= 1:
            raise ValueError(f"parser.agreement is a probability, got {agreement}")
        if not concentration > 0:
            raise ValueError(f"parser.concentration is positive, got {concentration}")
        self.task, self.candidates, self.agreement, self.concentration = task, candidates, agreement, concentration
        self.rows, self.band = rows, band

    @property
    def fingerprint(self) -> str:
        """Digest of everything that parses depend on."""
        return f"planted {VERSION} {self.task} {self.candidates} {self.agreement} {self.concentration}"

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
        draws = [rng.gammavariate(self.concentration, 1) for _ in range(self.candidates)]
        weights = [draw / sum(draws) for draw in draws]
        (planted,) = rng.choices(range(self.candidates), weights)
        # draw 0 is the tree that the reference follows: it takes position `planted`
        order = [0 if number == planted else number + 1 for number in range(self.candidates)]
        targets = self._targets(sentences, rng)
        return [planted_tree(sentences, self.task, draw, targets[draw]).nodes for draw in order], weights

    def _targets(self, sentences: list[str], rng: random.Random) -> list[int | None]:
        """Return the target of each draw; None for a random one.

        Targets of all candidates are drawn independently given the shared one. Given the planted tree's target, the
        shared one is therefore the same with the probability `agreement`.
        """
        targets: list[int | None] = [None] * (self.candidates + 1)
        if self.agreement is None:
            return targets
        size = len(sentences)

        def agreeing(target: int) -> int:
            if rng.random() < self.agreement:
                return target
            return (target + rng.randrange(1, size)) % size

        shared = agreeing(planted_tree(sentences, self.task).target)
        return [None, *(agreeing(shared) for _ in range(self.candidates))]
