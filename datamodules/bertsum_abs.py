"""Data of BertSumAbs: documents sentence by sentence, and summaries to be generated."""

from dataclasses import dataclass
from typing import Any

from datamodules.batch import TargetBatch, target_fields
from datamodules.bertsum import SentenceBatch, SentenceData
from datamodules.corpora.corpus import Corpus
from datamodules.documents import Document
from datamodules.loading import at_least
from datamodules.truncation import TRUNCATION, truncate_target


@dataclass
class BertSumAbsBatch(SentenceBatch, TargetBatch):
    """Documents as sentences, and their summaries."""


class BertSumAbsData(SentenceData):
    """Documents as sequences of sentences; their targets are first references, truncated to `max_target` tokens.

    Args:
        max_target: maximum number of tokens of a summary, end symbol included.
        shared: arguments of `SentenceData`.

    Raises:
        ValueError: if a number is too small.
    """

    batch_type = BertSumAbsBatch

    def __init__(
        self,
        corpus: Corpus,
        vocab_size: int = 30_522,
        checkpoint: str | None = "minilm",
        max_target: int = 140,  # as PreSumm
        **shared: Any,
    ) -> None:
        super().__init__(corpus, vocab_size, checkpoint, **shared)
        at_least(2, max_target=max_target)  # room for a token and the end symbol
        self.max_target = max_target

    def feature_settings(self) -> dict[str, Any]:  # what `encode` depends on, for the cache key
        return super().feature_settings() | {"max_target": self.max_target}

    def encode(self, document: Document) -> dict[str, Any]:  # features of a document
        features = super().encode(document)
        reference, _ = self.tokenizer(" ".join(document.reference))  # ids, without their offsets
        features["target"], counts = truncate_target(reference, self.max_target, self.tokenizer.stop)
        features[TRUNCATION] |= counts
        return features

    def collate(self, rows: list[dict[str, Any]]) -> BertSumAbsBatch:  # rows: features by `encode`
        targets = target_fields([row["target"] for row in rows], self.tokenizer.pad)
        return BertSumAbsBatch(**self.token_fields(rows), **targets)
