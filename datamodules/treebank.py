"""Data of the discourse parser and of the EDU segmenter: treebanks of gold EDUs, with gold trees for the parser."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pytorch_lightning import LightningDataModule
from pytorch_lightning.utilities import rank_zero_info

from datamodules.discourse.features import ParserBatch, ParserFeatures, label_classes, parser_features
from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.relations import coarsened, inventory_of
from datamodules.discourse.treebanks import read_treebank
from datamodules.documents import UserError
from datamodules.loading import ResumableLoader, at_least, loader_of, order_seed
from datamodules.text.edu_features import EduFeatures, SegmentationBatch, edu_features
from datamodules.text.language import language_of
from datamodules.text.offsets import sentence_offsets
from datamodules.text.subwords import Subwords


class TreebankSplits(LightningDataModule, ABC):
    """Base class of whole documents of treebanks, read and encoded in memory: a few million words at most.

    Subclasses define `encode` and `collate`, and may override `documents`.

    Args:
        train: treebank for training, a file or folder, see `read_treebank`.
        val: treebank for validation.
        test: treebank for test.
        checkpoint: pretrained encoder whose tokenizer is used; `small`, for none: tokens are words as hashes.
        licences: licences, spelled as in the treebank, where a note in parentheses may follow; training documents with
            another licence are left out. All documents by default.
        batch_size: number of documents per rank in a training batch.
        eval_batch_size: number of documents per rank in a batch of validation or test.
        pool: number of training batches that are sorted by length together; 0 for no sorting.
        num_workers: number of loader processes per rank; by default none on a CPU, up to 4 with a GPU.
        seed: seed of the training order; by default that of the run (`seed_everything`).
        language: ISO code of the language, which divides documents without sentences into sentences.

    Raises:
        ValueError: if a batch size is below 1.
    """

    collate: Callable[[list[Any]], Any]  # makes a batch of the features of documents

    def __init__(
        self,
        train: Path,
        val: Path,
        test: Path | None = None,
        checkpoint: str = "small",
        licences: Sequence[str] | None = None,
        batch_size: int = 2,
        eval_batch_size: int = 1,
        pool: int = 0,
        num_workers: int | None = None,
        seed: int | None = None,
        language: str = "en",
    ) -> None:
        super().__init__()
        at_least(1, batch_size=batch_size, eval_batch_size=eval_batch_size)
        self.paths = {"train": train, "val": val, "test": test}  # None for a split that is not needed
        self.checkpoint = checkpoint
        self.licences = licences
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size
        self.pool = pool
        self.num_workers = num_workers
        self.seed = order_seed(seed)
        self.language = language_of(language)
        self._features: dict[str, list[Any]] = {}  # what `encode` returns for each split; filled by `setup`

    @abstractmethod
    def encode(self, document: TreebankDocument, subwords: Subwords | None) -> Any:
        """Return the features of a document, with its `size` for sorting."""

    def documents(self, split: str) -> list[TreebankDocument]:
        """Return the documents of a split, of training only those with one of `licences`; log the licences left out.

        Raises:
            UserError: if the split has no treebank, or no document is left.
        """
        path = self.paths[split]
        if path is None:
            raise UserError(f"data.{split} is not given; name a treebank")
        documents = read_treebank(path, self.language.code)
        if split != "train" or self.licences is None:
            return documents
        permitted = [document for document in documents if document.licence.partition(" (")[0] in self.licences]
        if not permitted:
            raise UserError(
                f"{path}: no document has one of data.licences {list(self.licences)}; name others, or pass "
                "--data.licences null to take all"
            )
        if len(permitted) < len(documents):
            excluded = {document.licence for document in documents} - {document.licence for document in permitted}
            names = ", ".join(sorted(licence or "unknown" for licence in excluded))
            rank_zero_info(f"train: {len(permitted)} of {len(documents)} documents; left out: {names}")
        return permitted

    def setup(self, stage: str) -> None:
        """Read the treebanks that a stage of Lightning needs, and compute the features of their documents."""
        subwords = None if self.checkpoint == "small" else Subwords(self.checkpoint)  # `small` hashes words instead
        for split in {"fit": ["train", "val"], "validate": ["val"], "test": ["test"]}.get(stage, []):
            if split not in self._features:
                self._features[split] = [self.encode(document, subwords) for document in self.documents(split)]

    def _loader(self, split: str, shuffle: bool) -> ResumableLoader:
        features = self._features[split]
        order = {"shuffle": shuffle, "seed": self.seed, "pool": self.pool}
        lengths = [features_of_document.size for features_of_document in features]
        batch_size = self.batch_size if shuffle else self.eval_batch_size
        return loader_of(features, lengths, batch_size, self.collate, split, self.trainer, self.num_workers, **order)

    def train_dataloader(self) -> ResumableLoader:
        return self._loader("train", True)

    def val_dataloader(self) -> ResumableLoader:
        return self._loader("val", False)

    def test_dataloader(self) -> ResumableLoader:
        return self._loader("test", False)


class TreebankData(TreebankSplits):
    """Whole documents of treebanks with binary trees and coarse relations, batched by length.

    Args:
        inventory: coarse relations: `gum`, `rst_dt`, a list, or a mapping to fine ones, see `inventory_of`.
        shared: arguments of `TreebankSplits`.

    Raises:
        ValueError: if the inventory does not exist, or a batch size is below 1.
    """

    collate = staticmethod(ParserBatch.of)

    def __init__(
        self,
        train: Path,
        val: Path,
        test: Path | None = None,
        inventory: list[str] | dict[str, list[str]] | str = "gum",
        **shared: Any,
    ) -> None:
        super().__init__(train, val, test, eval_batch_size=1, pool=25, **shared)  # 25 batches are sorted together
        self.inventory = inventory_of(inventory)
        # (nuclearity, relation) -> index of the class that a parser predicts for a node
        self.classes = {name: number for number, name in enumerate(label_classes(self.inventory))}
        self._documents: dict[str, list[TreebankDocument]] = {}  # by split, filled on first use

    def documents(self, split: str) -> list[TreebankDocument]:
        """Return the documents of a split (see `TreebankSplits`) with relations made coarse; each is read once.

        Raises:
            UserError: if the split has no treebank, a document has no tree, or no document is left.
        """
        if split not in self._documents:
            documents = super().documents(split)
            if without_tree := [document.id for document in documents if document.tree is None]:
                problem = f"{self.paths[split]}: {without_tree[0]} and {len(without_tree) - 1} more have no tree"
                raise UserError(f"{problem}; a parser learns from trees")
            self._documents[split] = coarsened(documents, self.inventory, where=str(self.paths[split]))
        return self._documents[split]

    def encode(self, document: TreebankDocument, subwords: Subwords | None) -> ParserFeatures:
        """Return the features of a document, with its gold nodes (start, split, end, class) in indices of EDUs."""
        spans = document.tree.binary().spans()
        nodes = [(span.start, span.split, span.end, self.classes[span.nuclearity, span.relation]) for span in spans]
        return parser_features(document, document.edus, subwords, nodes, document.id)


class SegmentationData(TreebankSplits):
    """Whole documents of treebanks with gold EDUs.

    Args:
        sentences: `gold`: of the treebank, if it has them; `own`: split by rule, see `sentence_offsets`.
        shared: arguments of `TreebankSplits`.
    """

    collate = staticmethod(SegmentationBatch.of)

    def __init__(
        self,
        train: Path,
        val: Path,
        test: Path | None = None,
        sentences: Literal["gold", "own"] = "gold",
        batch_size: int = 4,
        **shared: Any,
    ) -> None:
        super().__init__(train, val, test, batch_size=batch_size, eval_batch_size=batch_size, pool=0, **shared)
        self.sentences = sentences

    def encode(self, document: TreebankDocument, subwords: Subwords | None) -> EduFeatures:
        """Return the features of a document, with the tags of its gold EDUs."""
        if self.sentences == "own":  # as in summarization, where no treebank has the sentences
            sentences = sentence_offsets(document.text, document.paragraphs or None, self.language.code)
            document = replace(document, sentences=sentences)
        return edu_features(document, subwords, document.edus, document.id)
