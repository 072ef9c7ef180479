"""Data of BertSumAbs: documents as extractive models read them, and summaries to be written."""

from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from datamodules.batch import pad
from datamodules.bertsum import ExtractiveBatch, ExtractiveData
from datamodules.corpora.corpus import Corpus
from datamodules.documents import Document
from datamodules.truncation import COLUMN


@dataclass
class BertSumAbsBatch(ExtractiveBatch):
    """Documents as sentences, and their summaries.

    Attributes:
        target: the first reference and the end symbol, [B, T].
        target_lengths: tokens of each target, [B].
        target_rows: flat positions of the targets' real tokens in [B T], [N].
    """

    target: Tensor
    target_lengths: Tensor
    target_rows: Tensor


class BertSumAbsData(ExtractiveData):
    """Whole documents, sentence by sentence, and first references cut to `max_target` tokens in the loss.

    Args:
        max_target: tokens of a summary, end symbol included.

    The other arguments are those of `ExtractiveData`.

    Raises:
        ValueError: if a number is too small.
    """

    batch_type = BertSumAbsBatch

    def __init__(
        self,
        corpus: Corpus,
        vocab_size: int = 30_522,
        encoder: str | None = "minilm",
        max_target: int = 140,
        max_source: int | None = None,
        piece: int = 200,
        **shared: Any,
    ) -> None:
        super().__init__(corpus, vocab_size, encoder, max_source=max_source, piece=piece, **shared)
        if max_target < 2:
            raise ValueError(f"data.max_target must be at least 2, got {max_target}")
        self.max_target = max_target

    def truncation_limits(self) -> dict[str, str]:
        return super().truncation_limits() | {"target_tokens": f"data.max_target {self.max_target}"}

    def feature_settings(self) -> dict[str, Any]:
        return super().feature_settings() | {"max_target": self.max_target}

    def encode(self, document: Document) -> dict[str, Any]:
        reference = document.references[0] if document.references else []
        whole_target = self.text(" ".join(reference))[0]
        target = whole_target[: self.max_target - 1]
        features = super().encode(document) | {"target": [*target, self.text.stop]}
        features[COLUMN] |= {"target_tokens": [len(target), len(whole_target)]}
        return features

    def collate(self, rows: list[dict[str, Any]]) -> BertSumAbsBatch:
        batch = super().collate(rows)
        real = pad([[1] * len(row["target"]) for row in rows])                       # [B, T]
        return BertSumAbsBatch(
            **{field.name: getattr(batch, field.name) for field in fields(batch)},
            target=pad([row["target"] for row in rows], self.text.pad),
            target_lengths=real.sum(1),
            target_rows=real.flatten().nonzero().squeeze(1),
        )
