"""Data of the discourse parser: treebanks of gold trees over gold EDUs."""

from collections.abc import Sequence
from pathlib import Path

from pytorch_lightning import LightningDataModule
from pytorch_lightning.utilities import rank_zero_info

from datamodules.discourse.features import ParserBatch, ParserFeatures, label_classes, parser_features
from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.relations import INVENTORIES, coarsened
from datamodules.discourse.treebanks import read_treebank
from datamodules.documents import CorpusError
from datamodules.loading import BatchSampler, ResumableLoader
from datamodules.text.subwords import Subwords


class TreebankData(LightningDataModule):
    """Whole documents of treebanks, their trees made binary and their relations coarse.

    Args:
        train: treebank to train on: a file or folder, see `read_treebank`.
        val: treebank to validate on.
        test: treebank to test on.
        encoder: whose tokenizer reads the texts; the model's.
        inventory: coarse relations, `gum` or `rst_dt`.
        licences: train on documents whose licence is one of these, or one of these and a note behind it in brackets,
            alone; on all if not given. Spelling counts.
        batch_size: documents a rank and training batch.
        num_workers: loader processes a rank.
        seed: of the training order.
    """

    def __init__(
        self,
        train: Path,
        val: Path,
        test: Path | None = None,
        encoder: str = "small",
        inventory: str = "gum",
        licences: Sequence[str] | None = None,
        batch_size: int = 2,
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if batch_size < 1:
            raise ValueError(f"data.batch_size must be at least 1, got {batch_size}")
        if inventory not in INVENTORIES:
            raise ValueError(f"data.inventory {inventory!r} is none of {', '.join(INVENTORIES)}")
        self.paths = {"train": train, "val": val, "test": test}
        self.encoder, self.inventory, self.licences = encoder, INVENTORIES[inventory], licences
        self.batch_size, self.num_workers, self.seed = batch_size, num_workers, seed
        self._documents: dict[str, list[TreebankDocument]] = {}
        self._features: dict[str, list[ParserFeatures]] = {}

    def documents(self, split: str) -> list[TreebankDocument]:
        """The documents of a split, with coarse relations; those left out for their licence are counted.

        Raises:
            CorpusError: if there is no such split, a document has no tree, or nothing is left.
        """
        if split in self._documents:
            return self._documents[split]
        path = self.paths[split]
        if path is None:
            raise CorpusError(f"data.{split} is not given; name a treebank")
        found = read_treebank(path)
        if bare := [document.id for document in found if document.tree is None]:
            raise CorpusError(f"{path}: {bare[0]} and {len(bare) - 1} more have no tree; a parser learns from trees")
        if split == "train" and self.licences is not None:
            kept = [document for document in found if document.licence.partition(" (")[0] in self.licences]
            others = sorted({document.licence or "unknown" for document in found} - {d.licence for d in kept})
            rank_zero_info(f"train: {len(kept)} of {len(found)} documents; left out: {', '.join(others)}")
            found = kept
        if not found:
            raise CorpusError(f"{path}: no document has one of data.licences {list(self.licences or [])}")
        self._documents[split] = coarsened(found, self.inventory, where=str(path))
        return self._documents[split]

    def setup(self, stage: str) -> None:
        """Reads treebanks and makes features of them, in memory."""
        subwords = None if self.encoder == "small" else Subwords(self.encoder)
        classes = {name: number for number, name in enumerate(label_classes(self.inventory))}
        for split in {"fit": ["train", "val"], "validate": ["val"], "test": ["test"]}.get(stage, []):
            if split not in self._features:
                documents = self.documents(split)
                self._features[split] = [_features(document, subwords, classes) for document in documents]

    def _loader(self, split: str, shuffle: bool) -> ResumableLoader:
        texts, trainer = self._features[split], self.trainer
        sampler = BatchSampler(
            [text.size for text in texts],
            self.batch_size if shuffle else 1,
            shuffle=shuffle,
            seed=self.seed,
            pool=25,
            num_replicas=trainer.world_size if trainer is not None else 1,
            rank=trainer.global_rank if trainer is not None else 0,
        )
        return ResumableLoader(texts, sampler, ParserBatch.of, self.num_workers)

    def train_dataloader(self) -> ResumableLoader:
        """Shuffled batches of documents of like length."""
        return self._loader("train", True)

    def val_dataloader(self) -> ResumableLoader:
        """Documents in their order, one at a time."""
        return self._loader("val", False)

    def test_dataloader(self) -> ResumableLoader:
        """Documents in their order, one at a time."""
        return self._loader("test", False)


def _features(document: TreebankDocument, subwords: Subwords | None, classes: dict) -> ParserFeatures:
    spans = document.tree.binary().spans()
    nodes = [(s.start, s.split, s.end, classes[s.nuclearity, s.relation]) for s in spans]
    return parser_features(document, document.edus, subwords, nodes, document.id)
