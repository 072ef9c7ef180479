"""F1 of the boundaries of a segmentation."""

from collections.abc import Collection, Hashable

import torch
from torch import Tensor
from torchmetrics import Metric


class BoundaryF1(Metric):
    """Precision, recall and F1 x 100 of segment boundaries, micro-averaged over all texts.

    `f1` counts all boundaries, as in published results of segmentation into discourse units (EDUs); `inner_f1` leaves
    out boundaries that are known in advance (the first words of gold sentences).
    """

    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        for name in ("hits", "found", "gold", "inner_hits", "inner_found", "inner_gold"):  # found: predicted
            self.add_state(name, torch.tensor(0), dist_reduce_fx="sum")

    def update(
        self, predicted: Collection[Hashable], gold: Collection[Hashable], trivial: Collection[Hashable] = ()
    ) -> None:
        """Add a text by the predicted and gold beginnings of its segments, as indices of words or characters.

        `trivial` beginnings are known in advance, such as beginnings of sentences; the inner scores leave them out.
        """
        predicted, gold, trivial = set(predicted), set(gold), set(trivial)
        inner_predicted, inner_gold = predicted - trivial, gold - trivial
        counts = {"hits": predicted & gold, "found": predicted, "gold": gold}  # the states to add their sizes to
        counts |= {"inner_hits": inner_predicted & inner_gold, "inner_found": inner_predicted, "inner_gold": inner_gold}
        for name, boundaries in counts.items():
            setattr(self, name, getattr(self, name) + len(boundaries))

    def compute(self) -> dict[str, Tensor]:
        """Return precision, recall, f1, inner_precision, inner_recall, inner_f1; 100 where the denominator is 0."""
        scores = {}
        for prefix in ("", "inner_"):
            # counts, summed by `update`; `found` boundaries are the predicted ones
            hits, predicted, gold = (getattr(self, prefix + name).double() for name in ("hits", "found", "gold"))
            fractions = {"precision": (hits, predicted), "recall": (hits, gold), "f1": (2 * hits, predicted + gold)}
            for name, (part, total) in fractions.items():
                score = 100 * part / total if total else torch.full_like(total, 100)  # 100: no boundary, no error
                scores[prefix + name] = score.float()
        return scores
