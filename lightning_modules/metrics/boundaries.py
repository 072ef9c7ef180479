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
        # numbers of hits, predicted and gold boundaries: of all, and of inner ones
        self.add_state("counts", torch.zeros(2, 3, dtype=torch.long), dist_reduce_fx="sum")

    def update(
        self, predicted: Collection[Hashable], gold: Collection[Hashable], trivial: Collection[Hashable] = ()
    ) -> None:
        """Add a text by the predicted and gold beginnings of its segments, as indices of words or characters.

        `trivial` beginnings are known in advance, such as beginnings of sentences; the inner scores leave them out.
        """
        counts = []
        for left_out in ((), trivial):
            found, correct = set(predicted).difference(left_out), set(gold).difference(left_out)
            counts.append([len(found & correct), len(found), len(correct)])
        self.counts = self.counts + self.counts.new_tensor(counts)  # not in place, see `Parseval.update`

    def compute(self) -> dict[str, Tensor]:
        """Return precision, recall, f1, inner_precision, inner_recall, inner_f1; 100 where the denominator is 0."""
        scores = {}
        for prefix, (hits, predicted, gold) in zip(("", "inner_"), self.counts.double()):
            fractions = {"precision": (hits, predicted), "recall": (hits, gold), "f1": (2 * hits, predicted + gold)}
            for name, (part, total) in fractions.items():
                score = 100 * part / total if total else torch.full_like(total, 100)  # 100: no boundary, no error
                scores[prefix + name] = score.float()
        return scores
