"""Data of the EDU segmenter: texts of treebanks, their sentences, and where their EDUs begin."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pytorch_lightning import LightningDataModule
from pytorch_lightning.utilities import rank_zero_info

from datamodules.batch import Batch
from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.treebanks import read_treebank
from datamodules.documents import CorpusError
from datamodules.loading import BatchSampler, ResumableLoader
from datamodules.text.edu_features import EduFeatures, SegmentationBatch, edu_features
from datamodules.text.subwords import Subwords


class SegmentationData(LightningDataModule):
    """Whole documents of treebanks with gold EDUs.

    Args:
        train: treebank to train on: a file or folder, see `read_treebank`.
        val: treebank to validate on.
        test: treebank to test on.
        encoder: whose tokenizer reads the texts; the model's.
        licences: train on documents whose licence is one of these, or one of these and a note behind it in brackets,
            alone; on all if not given. Spelling counts.
        sentences: `gold` offsets of the treebank where it has them, or our `own`.
        batch_size: documents a rank and training batch.
        max_train: train on the first so many documents; all if not given.
        num_workers: loader processes a rank.
        seed: of the training order.
    """

    def __init__(
        self,
        train: Path,
        val: Path,
        test: Path | None = None,
        encoder: str = "small",
        licences: Sequence[str] | None = None,
        sentences: Literal["gold", "own"] = "gold",
        batch_size: int = 4,
        max_train: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if batch_size < 1:
            raise ValueError(f"data.batch_size must be at least 1, got {batch_size}")
        self.paths = {"train": train, "val": val, "test": test}
        self.encoder, self.licences, self.sentences, self.batch_size = encoder, licences, sentences, batch_size
        self.max_train, self.num_workers, self.seed = max_train, num_workers, seed
        self._features: dict[str, list[EduFeatures]] = {}

    def documents(self, split: str) -> list[TreebankDocument]:
        """The documents of a split; those left out for their licence are counted.

        Raises:
            CorpusError: if there is no such split, or nothing is left of it.
        """
        if self.paths[split] is None:
            raise CorpusError(f"data.{split} is not given; name a treebank")
        documents = read_treebank(self.paths[split])
        if split != "train":
            return documents
        kept = [document for document in documents if self._allowed(document.licence)]
        if len(kept) < len(documents):
            others = sorted({document.licence or "unknown" for document in documents} - {d.licence for d in kept})
            rank_zero_info(f"train: {len(kept)} of {len(documents)} documents; left out: {', '.join(others)}")
        if not kept:
            raise CorpusError(f"{self.paths[split]}: no document has one of data.licences {list(self.licences or [])}")
        return kept[: self.max_train]

    def _allowed(self, licence: str) -> bool:
        return self.licences is None or licence.partition(" (")[0] in self.licences

    def setup(self, stage: str) -> None:
        """Reads treebanks and makes features of them, in memory: a few million words at most."""
        wanted = {"fit": ["train", "val"], "validate": ["val"], "test": ["test"]}.get(stage, [])
        subwords = None if self.encoder == "small" else Subwords(self.encoder)
        for split in wanted:
            if split not in self._features:
                self._features[split] = [self._encoded(d, subwords) for d in self.documents(split)]

    def _encoded(self, document: TreebankDocument, subwords: Subwords | None) -> EduFeatures:
        request = document if self.sentences == "gold" else replace(document, sentences=[])
        return edu_features(request, subwords, document.edus, document.id)

    def _loader(self, split: str, shuffle: bool) -> ResumableLoader:
        texts = self._features[split]
        trainer = self.trainer
        sampler = BatchSampler(
            [len(text.offsets) for text in texts],
            self.batch_size,
            shuffle=shuffle,
            seed=self.seed,
            pool=0,
            num_replicas=trainer.world_size if trainer is not None else 1,
            rank=trainer.global_rank if trainer is not None else 0,
        )
        return ResumableLoader(texts, sampler, _batch, self.num_workers)

    def train_dataloader(self) -> ResumableLoader:
        """Shuffled batches."""
        return self._loader("train", True)

    def val_dataloader(self) -> ResumableLoader:
        """Documents in their order."""
        return self._loader("val", False)

    def test_dataloader(self) -> ResumableLoader:
        """Documents in their order."""
        return self._loader("test", False)


def _batch(texts: list[EduFeatures]) -> Batch:
    return SegmentationBatch.of(texts)
