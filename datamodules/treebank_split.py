"""What the DataModules of treebanks share: which documents a split has, and in which order they come."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pytorch_lightning import LightningDataModule
from pytorch_lightning.utilities import rank_zero_info

from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.treebanks import read_treebank
from datamodules.documents import CorpusError
from datamodules.loading import BatchSampler, ResumableLoader, order_seed
from datamodules.text.subwords import Subwords


class TreebankSplits(LightningDataModule, ABC):
    """Whole documents of treebanks, read and encoded in memory: a few million words at most.

    A DataModule gives `encode`, `collate` and the length of what it encoded, and may change `documents`.

    Args:
        train: treebank to train on: a file or folder, see `read_treebank`.
        val: treebank to validate on.
        test: treebank to test on.
        encoder: whose tokenizer reads the texts; `small` for hashed words.
        licences: train on documents whose licence is one of these, or one of these and a note behind it in brackets,
            alone; on all if not given. Spelling counts.
        batch_size: documents a rank and training batch.
        eval_batch_size: the same in validation and test.
        pool: training batches whose documents are sorted by length together; 0 leaves lengths mixed.
        num_workers: loader processes a rank.
        seed: of the training order; the run's own (`seed_everything`) if not given.

    Raises:
        ValueError: if a batch is to hold no document.
    """

    collate: Callable[[list[Any]], Any]  # a batch of what `encode` gave

    def __init__(
        self,
        train: Path,
        val: Path,
        test: Path | None,
        encoder: str,
        licences: Sequence[str] | None,
        batch_size: int,
        eval_batch_size: int,
        pool: int,
        num_workers: int,
        seed: int | None,
    ) -> None:
        super().__init__()
        if batch_size < 1:
            raise ValueError(f"data.batch_size must be at least 1, got {batch_size}")
        self.paths = {"train": train, "val": val, "test": test}
        self.encoder, self.licences = encoder, licences
        self.batch_size, self.eval_batch_size, self.pool = batch_size, eval_batch_size, pool
        self.num_workers, self.seed = num_workers, order_seed(seed)
        self._features: dict[str, list[Any]] = {}

    @abstractmethod
    def encode(self, document: TreebankDocument, subwords: Subwords | None) -> Any:
        """Features of one document."""

    @abstractmethod
    def length(self, features: Any) -> int:
        """What documents are sorted by."""

    def documents(self, split: str) -> list[TreebankDocument]:
        """The documents of a split; those left out for their licence are counted.

        Raises:
            CorpusError: if there is no such split, or nothing is left of it.
        """
        path = self.paths[split]
        if path is None:
            raise CorpusError(f"data.{split} is not given; name a treebank")
        found = read_treebank(path)
        if split != "train" or self.licences is None:
            return found
        kept = [document for document in found if document.licence.partition(" (")[0] in self.licences]
        if not kept:
            raise CorpusError(
                f"{path}: no document has one of data.licences {list(self.licences)}; name others, or pass "
                "--data.licences null to take all"
            )
        if len(kept) < len(found):
            others = sorted({document.licence or "unknown" for document in found} - {d.licence for d in kept})
            rank_zero_info(f"train: {len(kept)} of {len(found)} documents; left out: {', '.join(others)}")
        return kept

    def setup(self, stage: str) -> None:
        """Reads treebanks and makes features of them."""
        subwords = None if self.encoder == "small" else Subwords(self.encoder)
        for split in {"fit": ["train", "val"], "validate": ["val"], "test": ["test"]}.get(stage, []):
            if split not in self._features:
                self._features[split] = [self.encode(document, subwords) for document in self.documents(split)]

    def _loader(self, split: str, shuffle: bool) -> ResumableLoader:
        texts, trainer = self._features[split], self.trainer
        sampler = BatchSampler(
            [self.length(text) for text in texts],
            self.batch_size if shuffle else self.eval_batch_size,
            shuffle=shuffle,
            seed=self.seed,
            pool=self.pool,
            num_replicas=trainer.world_size if trainer is not None else 1,
            rank=trainer.global_rank if trainer is not None else 0,
        )
        return ResumableLoader(texts, sampler, self.collate, self.num_workers)

    def train_dataloader(self) -> ResumableLoader:
        """Shuffled batches."""
        return self._loader("train", True)

    def val_dataloader(self) -> ResumableLoader:
        """Documents in their order."""
        return self._loader("val", False)

    def test_dataloader(self) -> ResumableLoader:
        """Documents in their order."""
        return self._loader("test", False)
