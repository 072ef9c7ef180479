"""Mean ROUGE as a metric of `torchmetrics` that is exact under DDP."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from lightning_modules.metrics.rouge import VARIANTS, score_many, signature


class Rouge(Metric):
    """Mean ROUGE F1 x 100 over documents, see `rouge_scores`.

    The state is one sum per variant, as an integer in units of 2^-40, and the number of documents. As sums of integers
    are exact, the result does not depend on the order of documents or their distribution over processes and batches.
    Empty predictions score 0 and are included. Other options of `rouge_scores` have their defaults.

    Raises:
        ValueError: for an unknown variant or option; in `update`, as `score_many`.
    """

    full_state_update = False
    _UNIT = 2**40  # rounding changes a score by less than 1e-12; sums over 8 million documents fit into int64

    def __init__(self, variants: Sequence[str] = VARIANTS, language: str = "en", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.variants = tuple(variants)
        self.language = language
        self.signatures = {variant: signature(variant, language=language) for variant in self.variants}
        for name, shape in (("totals", len(self.variants)), ("documents", ())):
            self.add_state(name, torch.zeros(shape, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, predictions: list[list[str]], references: list[list[list[str]]]) -> None:
        """Add documents: sentences of each prediction, and its references as lists of sentences."""
        scores = score_many(predictions, references, self.variants, language=self.language)
        sums = [sum(round(score[variant].fmeasure * self._UNIT) for score in scores) for variant in self.variants]
        # not in place: after `validate` the state is an inference tensor, which `fit` may not change
        self.totals = self.totals + self.totals.new_tensor(sums)
        self.documents = self.documents + len(scores)

    def compute(self) -> dict[str, Tensor]:
        """Return the mean F1 x 100 of each variant, scalars."""
        documents = max(int(self.documents), 1)  # without documents, means are 0
        means = [100 * total / self._UNIT / documents for total in self.totals.tolist()]
        return {variant: torch.tensor(mean, device=self.device) for variant, mean in zip(self.variants, means)}
