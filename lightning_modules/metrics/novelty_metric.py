"""Mean novelty, repetition and extraction as a metric of `torchmetrics`."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from lightning_modules.metrics.novelty import (
    ORDERS,
    Sentences,
    extraction_of_ids,
    novelty_of_ids,
    repetition_of_ids,
)
from lightning_modules.metrics.rouge_words import vocabulary


class Novelty(Metric):
    """Means over documents of `novelty`, `repetition` and `extraction`.

    A document counts for those measures that it has: a summary of one word has no bigram that could be new. The
    state is a sum and a count a measure, sums in units of 2^-32 as integers: the same in any order of documents.

    Args:
        orders, tokenizer: as in `novelty`.

    Raises:
        ValueError: for an unknown tokenizer.

    Attributes:
        names: of the measures. Shares come x 100; `density` in words, `compression` as a ratio.
    """

    is_differentiable = False
    higher_is_better = None
    full_state_update = False
    _UNIT = 2**32

    def __init__(self, orders: Sequence[int] = ORDERS, tokenizer: str = "unicode", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.orders, self.tokenizer = tuple(orders), tokenizer
        vocabulary(stem=False, tokenizer=tokenizer)  # an unknown tokenizer is refused here rather than in `update`
        kinds = [*map(str, self.orders), "sentences"]
        shares = [f"{measure}_{kind}" for measure in ("novel", "repeated") for kind in kinds]
        self.names = (*shares, "coverage", "density", "compression")
        for state in ("totals", "documents"):
            self.add_state(state, torch.zeros(len(self.names), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, summaries: Sequence[Sentences], sources: Sequence[Sentences]) -> None:
        """Adds documents: the sentences of the summaries, and of what they summarize.

        Raises:
            ValueError: if the lengths differ.
        """
        if len(summaries) != len(sources):
            raise ValueError(f"{len(summaries)} summaries but {len(sources)} sources")
        words = vocabulary(stem=False, tokenizer=self.tokenizer)
        for summary, source in zip(summaries, sources):
            words.bound()
            summary, source = ([words.encode(sentence) for sentence in text] for text in (summary, source))
            measures = novelty_of_ids(summary, source, self.orders) | repetition_of_ids(summary, self.orders)
            if cut := extraction_of_ids(summary, source):
                measures |= cut._asdict()
            for column, name in enumerate(self.names):
                if (value := measures.get(name)) is not None:
                    self.totals[column] += round(value * self._UNIT)
                    self.documents[column] += 1

    def compute(self) -> dict[str, Tensor]:
        """The mean of each measure, scalars; nan where no document had any."""
        means = {}
        for name, total, documents in zip(self.names, self.totals.tolist(), self.documents.tolist()):
            scale = 1 if name in ("density", "compression") else 100
            mean = scale * total / self._UNIT / documents if documents else float("nan")
            means[name] = torch.tensor(mean, device=self.device)
        return means
