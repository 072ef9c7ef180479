"""Data of the EDU segmenter: texts of treebanks, their sentences, and where their EDUs begin."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from datamodules.discourse.records import TreebankDocument
from datamodules.text.edu_features import EduFeatures, SegmentationBatch, edu_features
from datamodules.text.offsets import sentence_offsets
from datamodules.text.subwords import Subwords
from datamodules.treebank_split import TreebankSplits


class SegmentationData(TreebankSplits):
    """Whole documents of treebanks with gold EDUs.

    Args:
        sentences: `gold` offsets of the treebank if available, or our `own` splitting.
        max_train: maximal number of training documents; all by default.

    The other arguments are those of `TreebankSplits`.
    """

    collate = staticmethod(SegmentationBatch.of)

    def __init__(
        self,
        train: Path,
        val: Path,
        test: Path | None = None,
        checkpoint: str = "small",
        sentences: Literal["gold", "own"] = "gold",
        batch_size: int = 4,
        max_train: int | None = None,
        **shared: Any,
    ) -> None:
        super().__init__(
            train, val, test, checkpoint, batch_size=batch_size, eval_batch_size=batch_size, pool=0, **shared
        )
        self.sentences, self.max_train = sentences, max_train

    def documents(self, split: str) -> list[TreebankDocument]:
        """Return the documents of a split, see `TreebankSplits`."""
        documents = super().documents(split)
        return documents[: self.max_train] if split == "train" else documents

    def encode(self, document: TreebankDocument, subwords: Subwords | None) -> EduFeatures:
        """Return the features of a document, with the tags of its gold EDUs."""
        if self.sentences == "own":
            sentences = sentence_offsets(document.text, document.paragraphs or None, self.language.code)
            document = replace(document, sentences=sentences)
        return edu_features(document, subwords, document.edus, document.id)

    def length(self, features: EduFeatures) -> int:
        """Return the number of words."""
        return len(features.offsets)
