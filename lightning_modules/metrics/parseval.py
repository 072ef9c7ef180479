"""Parseval for RST trees: spans, nuclearity and relations, original and after Marcu, as functions and as a metric."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

VARIANTS = ("original", "rst")
LEVELS = ("S", "N", "R", "F")  # span, span and nuclearity, span and relation, all three

# An internal node of a binary tree over EDUs 0, 1, ...: first EDU, last EDU of the left child, last EDU (inclusive),
# nuclearity (NS, SN or NN), relation.
Node = tuple[int, int, int, str, str]
Bracket = tuple[float, float, str, str]


def parseval_counts(
    predicted: Sequence[Node],
    target: Sequence[Node],
    variant: str = "original",
    predicted_starts: Sequence[int] | None = None,
    target_starts: Sequence[int] | None = None,
) -> Tensor:
    """What Parseval counts in one document.

    - `original` (Morey et al. 2017): the internal nodes of the binary trees, the root among them, once each, with
      their nuclearity and relation. n EDUs give n - 1 nodes.
    - `rst` (Marcu 2000): all nodes but the root, the leaves among them, each with what it is to its parent: nucleus or
      satellite; the relation of a satellite or of a nucleus among nuclei, `span` for a single nucleus. n EDUs give
      2n - 2 nodes, and n of them match by themselves where both trees stand on the same EDUs: figures are higher.

    Trees over different segmentations of a text are compared by characters: a node is where its first EDU begins and
    where the EDU behind its last one begins. Nodes that occur twice in a tree, as none should, count as often as they
    occur in both.

    Args:
        predicted: nodes of the predicted tree, in any order; none for a single EDU.
        target: nodes of the true tree.
        variant: `original` or `rst`.
        predicted_starts: where each predicted EDU begins in the text; needed if the EDUs are not the true ones.
        target_starts: where each true EDU begins.

    Returns:
        Matching nodes on the levels S, N, R and F, predicted nodes, true nodes: [6], int64.

    Raises:
        ValueError: for an unknown variant, nodes that cannot be a binary tree, trees over different numbers of EDUs
            without `starts`, or `starts` of another length.
    """
    if variant not in VARIANTS:
        raise ValueError(f"unknown Parseval {variant!r}; take one of {', '.join(VARIANTS)}")
    if (predicted_starts is None) != (target_starts is None):
        raise ValueError("give the starts of both segmentations or of none")
    if target_starts is None and len(predicted) != len(target):
        raise ValueError(
            f"the trees have {len(predicted) + 1} and {len(target) + 1} EDUs; "
            "give predicted_starts and target_starts to compare them by characters"
        )
    brackets = original_brackets if variant == "original" else rst_brackets
    ours = _by_characters(brackets(predicted), len(predicted) + 1, predicted_starts, "predicted")
    theirs = _by_characters(brackets(target), len(target) + 1, target_starts, "target")
    views = (lambda b: b[:2], lambda b: b[:3], lambda b: (*b[:2], b[3]), lambda b: b)
    matches = [(Counter(map(view, ours)) & Counter(map(view, theirs))).total() for view in views]
    return torch.tensor([*matches, len(ours), len(theirs)], dtype=torch.int64)


def parseval_scores(counts: Tensor) -> Tensor:
    """Micro-averaged F1 x 100 of summed counts, 2 matches / (predicted + true nodes): [..., 6] -> [..., 4] (S N R F).

    NaN where no tree has a node: documents of one EDU have no structure to be right or wrong about.
    """
    return 200.0 * counts[..., :4] / (counts[..., 4:5] + counts[..., 5:6])


class Parseval(Metric):
    """Parseval F1 x 100, micro-averaged over the nodes of all documents.

    Keys say which Parseval it is: `original_parseval/S`, `/N`, `/R`, `/F`, and `rst_parseval/...`. The two differ by
    some ten to twenty points on the same trees and must not be compared with each other.

    Args:
        variants: `original` (Morey et al. 2017), `rst` (Marcu 2000), or both; see `parseval_counts`.

    The state is a sum of integers: the result does not depend on how documents are spread over processes.

    Attributes:
        totals: what `parseval_counts` gives, summed over documents: [V, 6], int64.

    Raises:
        ValueError: for an unknown variant; in `update` as `parseval_counts`.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    def __init__(self, variants: Sequence[str] = VARIANTS, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not variants or set(variants) - set(VARIANTS):
            raise ValueError(f"unknown Parseval in {list(variants)}; take of {', '.join(VARIANTS)}")
        self.variants = tuple(variants)
        self.add_state("totals", torch.zeros(len(self.variants), 6, dtype=torch.int64), dist_reduce_fx="sum")
        self._documents: list[Tensor] = []

    def update(
        self,
        predicted: Sequence[Node],
        target: Sequence[Node],
        predicted_starts: Sequence[int] | None = None,
        target_starts: Sequence[int] | None = None,
    ) -> None:
        """Adds a document; arguments as in `parseval_counts`."""
        rows = [
            parseval_counts(predicted, target, variant, predicted_starts, target_starts) for variant in self.variants
        ]
        counts = torch.stack(rows)  # [V, 6]
        self.totals += counts.to(self.device)
        self._documents.append(counts)

    def per_document(self) -> Tensor:
        """Counts of the documents that `update` got on this process, for a bootstrap: [D, V, 6], int64."""
        empty = torch.zeros(0, len(self.variants), 6, dtype=torch.int64)
        return torch.stack(self._documents) if self._documents else empty

    def reset(self) -> None:
        """Forgets all documents."""
        super().reset()
        self._documents = []

    def compute(self) -> dict[str, Tensor]:
        """F1 x 100 by name, scalars."""
        scores = parseval_scores(self.totals)  # [V, 4]
        return {
            f"{variant}_parseval/{level}": scores[row, column]
            for row, variant in enumerate(self.variants)
            for column, level in enumerate(LEVELS)
        }


def original_brackets(nodes: Sequence[Node]) -> list[Bracket]:
    """First and last EDU, nuclearity and relation of each internal node."""
    return [(start, end, nuclearity, relation) for start, _, end, nuclearity, relation in nodes]


def rst_brackets(nodes: Sequence[Node]) -> list[Bracket]:
    """First and last EDU of each node but the root, whether it is nucleus or satellite, and its relation to its parent.

    Raises:
        ValueError: if a nuclearity is none of NS, SN, NN.
    """
    brackets = []
    for start, split, end, nuclearity, relation in nodes:
        if nuclearity not in ("NS", "SN", "NN"):
            raise ValueError(f"EDUs {start} to {end}: nuclearity {nuclearity!r} is none of NS, SN, NN")
        left, right = (relation if letter == "S" or nuclearity == "NN" else "span" for letter in nuclearity)
        brackets += [(start, split, nuclearity[0], left), (split + 1, end, nuclearity[1], right)]
    return brackets


def _by_characters(brackets: list[Bracket], size: int, starts: Sequence[int] | None, whose: str) -> list[Bracket]:
    """Brackets in characters instead of EDUs, if `starts` says where each EDU begins; the text's ends are infinite."""
    if any(not 0 <= first <= last < size for first, last, *_ in brackets):
        raise ValueError(f"the {whose} tree has {size - 1} nodes, which is {size} EDUs, but a node outside of them")
    if starts is None:
        return brackets
    if len(starts) != size:
        raise ValueError(f"the {whose} tree has {size} EDUs, but {len(starts)} starts")
    if any(left >= right for left, right in pairwise(starts)):
        raise ValueError(f"the {whose} starts do not increase")
    bounds = [float("-inf"), *map(float, starts[1:]), float("inf")]
    return [(bounds[first], bounds[last + 1], *label) for first, last, *label in brackets]
