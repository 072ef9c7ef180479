"""Parseval for RST trees: spans, nuclearity and relations, original and after Marcu, as functions and as a metric."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

VARIANTS = ("original", "rst")
LEVELS = ("S", "N", "R", "F")  # what must match: span, span and nuclearity, span and relation, all three

# An internal node of a binary tree over EDUs 0, 1, ...: first EDU, last EDU of the left child, last EDU (inclusive),
# nuclearity (NS, SN or NN), relation.
Node = tuple[int, int, int, str, str]
Bracket = tuple[float, float, str, str]  # start, end, nuclearity or role, relation


def parseval_counts(
    predicted: Sequence[Node],
    target: Sequence[Node],
    variant: str = "original",
    predicted_starts: Sequence[int] | None = None,
    target_starts: Sequence[int] | None = None,
) -> Tensor:
    """Return the counts of Parseval for the RST trees of one document.

    - `original` (Morey et al. 2017): the internal nodes of the binary trees, including the root, with nuclearity and
      relation. A tree over n EDUs (leaves) has n - 1 nodes.
    - `rst` (Marcu 2000): all nodes but the root, including leaves, each with its role in its parent (nucleus or
      satellite) and relation (`span` for a single nucleus). There are 2n - 2 nodes; n of them, the leaves, always match
      if both trees have the same EDUs, so scores are higher.

    Trees over different segmentations of a text are compared by characters: a node is identified by the first character
    of its first EDU and that of the EDU after its last one.

    Args:
        predicted: nodes of the predicted tree, in any order; none for a single EDU.
        target: nodes of the true tree.
        variant: `original` or `rst`.
        predicted_starts: first character of each predicted EDU; needed if EDUs differ from the true ones.
        target_starts: first character of each true EDU.

    Returns:
        Numbers of matching nodes on the levels S, N, R and F, of predicted nodes and of true nodes: int64 [6].

    Raises:
        ValueError: for an unknown variant, nodes that are not a binary tree, trees over different numbers of EDUs
            without `starts`, or `starts` of another length.
    """
    if variant not in VARIANTS:
        raise ValueError(f"unknown Parseval {variant!r}; choose one of {', '.join(VARIANTS)}")
    if (predicted_starts is None) != (target_starts is None):
        raise ValueError("give the starts of both segmentations or of none")
    if target_starts is None and len(predicted) != len(target):
        raise ValueError(
            f"the trees have {len(predicted) + 1} and {len(target) + 1} EDUs; "
            "give predicted_starts and target_starts to compare them by characters"
        )
    brackets = original_brackets if variant == "original" else rst_brackets
    predicted_spans = _by_characters(brackets(predicted), len(predicted) + 1, predicted_starts, "predicted")
    target_spans = _by_characters(brackets(target), len(target) + 1, target_starts, "target")
    # what must match on the levels S, N, R and F, of a bracket (start, end, nuclearity, relation)
    parts = (lambda b: b[:2], lambda b: b[:3], lambda b: (*b[:2], b[3]), lambda b: b)
    matches = [(Counter(map(part, predicted_spans)) & Counter(map(part, target_spans))).total() for part in parts]
    return torch.tensor([*matches, len(predicted_spans), len(target_spans)], dtype=torch.int64)


def parseval_scores(counts: Tensor) -> Tensor:
    """Return micro-averaged F1 x 100 (S N R F), 2 matches / (predicted + true nodes), of counts: [..., 6] -> [..., 4].

    NaN if no tree has a node, that is, if all documents have one EDU.
    """
    return 200.0 * counts[..., :4] / (counts[..., 4:5] + counts[..., 5:6])


class Parseval(Metric):
    """Parseval F1 x 100 of RST trees in two variants (`VARIANTS`), micro-averaged over the nodes of all documents.

    Keys name variant and level: `original_parseval/S`, `/N`, `/R`, `/F`, and `rst_parseval/...`. The variants differ by
    ten to twenty points on the same trees and must not be compared with each other. The state `totals` has sums of
    `parseval_counts`, [2, 6], so that the result does not depend on the distribution over processes.
    """

    full_state_update = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("totals", torch.zeros(len(VARIANTS), 6, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, predicted: Sequence[Node], target: Sequence[Node]) -> None:
        """Add a document; arguments as in `parseval_counts`."""
        counts = torch.stack([parseval_counts(predicted, target, variant) for variant in VARIANTS])  # [2, 6]
        # not in place: after `validate` the state is an inference tensor, which `fit` may not change
        self.totals = self.totals + counts.to(self.device)

    def compute(self) -> dict[str, Tensor]:
        """Return F1 x 100 of each variant and level by name, scalars."""
        scores = parseval_scores(self.totals)  # [2, 4]
        cells = product(enumerate(VARIANTS), enumerate(LEVELS))
        return {f"{variant}_parseval/{level}": scores[row, column] for (row, variant), (column, level) in cells}


def original_brackets(nodes: Sequence[Node]) -> list[Bracket]:
    """Return first EDU, last EDU, nuclearity and relation of each internal node."""
    return [(start, end, nuclearity, relation) for start, _, end, nuclearity, relation in nodes]


def rst_brackets(nodes: Sequence[Node]) -> list[Bracket]:
    """Return first and last EDU, role (N or S) in the parent, and relation of all nodes but the root (Marcu 2000).

    A single nucleus has the relation "span", others their parent's. Raises a `ValueError` for an unknown nuclearity.
    """
    brackets = []
    for start, split, end, nuclearity, relation in nodes:  # split: last EDU of the left child
        if nuclearity not in ("NS", "SN", "NN"):
            raise ValueError(f"EDUs {start} to {end}: nuclearity {nuclearity!r} is not one of NS, SN, NN")
        left, right = (relation if letter == "S" or nuclearity == "NN" else "span" for letter in nuclearity)
        brackets += [(start, split, nuclearity[0], left), (split + 1, end, nuclearity[1], right)]
    return brackets


def _by_characters(brackets: list[Bracket], size: int, starts: Sequence[int] | None, side: str) -> list[Bracket]:
    """Check the brackets of the tree `side` over `size` EDUs; with the EDUs' first characters, convert EDUs to them."""
    if any(not 0 <= first <= last < size for first, last, *_ in brackets):
        raise ValueError(f"the {side} tree has {size - 1} nodes for {size} EDUs, but a node lies outside of them")
    if starts is None:
        return brackets
    if len(starts) != size:
        raise ValueError(f"the {side} tree has {size} EDUs, but {len(starts)} starts")
    if any(left >= right for left, right in pairwise(starts)):
        raise ValueError(f"the {side} starts do not increase")
    # EDU i is from bounds[i] to bounds[i + 1]; both trees have equal (infinite) bounds at the ends of the text
    bounds = [float("-inf"), *map(float, starts[1:]), float("inf")]
    return [(bounds[first], bounds[last + 1], *label) for first, last, *label in brackets]
