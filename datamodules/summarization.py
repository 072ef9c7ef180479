"""`SummarizationData`: from a corpus to batches, for every model of the suite."""

import copy
import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self

import datasets
from pytorch_lightning import LightningDataModule
from pytorch_lightning.utilities import rank_zero_info, rank_zero_only

from datamodules.batch import Batch
from datamodules.building import appearing_folder, building_folder
from datamodules.corpora.corpus import Corpus, as_document, build_documents, read_manifest
from datamodules.documents import CorpusError, Document
from datamodules.loading import BatchSampler, ResumableLoader, order_seed
from datamodules.truncation import TruncationRow, truncation_line, truncation_rows

TRAIN, VAL, TEST = "train", "val", "test"
FEATURES_VERSION = 2  # of what all features have; 2: counts of what is cut off


def default_cache() -> Path:
    """`$PRECIS_CACHE`, or `precis` in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("PRECIS_CACHE") or Path(home) / "precis")


class Text(Protocol):
    """What turns text into ids: a vocabulary or a tokenizer."""

    def __len__(self) -> int: ...
    def state(self) -> dict[str, Any]: ...
    def save(self, folder: Path) -> None: ...
    @classmethod
    def load(cls, folder: Path) -> Self: ...


class SummarizationData(LightningDataModule, ABC):
    """Documents of a corpus as batches.

    A paper's DataModule says how text is built (`build_text`, `load_text`), how a document becomes features (`encode`),
    how features become a batch (`collate`), and which options cut documents off (`truncation_limits`). What they cut is
    counted by `encode`, and reported once for each split. Documents, text and features are built once, in
    `prepare_data` on rank 0, and kept in the cache.

    Args:
        corpus: where documents come from.
        batch_size: documents a rank and training batch.
        eval_batch_size: the same in validation, test and prediction; `batch_size` if not given.
        text: folder with the text of an earlier run (`RUN/text`), used instead of building it anew.
        cache_dir: where everything derived is kept; `$PRECIS_CACHE` or `~/.cache/precis` if not given.
        on_bad_record: `raise` stops at a record that is no document, `skip` counts and names it.
        max_train: train on the first so many documents; all if not given.
        max_eval: validate, test and predict on the first so many; all if not given.
        num_workers: loader processes a rank.
        num_proc: processes that split sentences and encode documents.
        pool: global batches that are sorted by length together, see `BatchSampler`.
        seed: of the training order; the run's own (`seed_everything`) if not given.
    """

    batch_type: ClassVar[type[Batch]] = Batch  # what `collate` makes
    text_type: ClassVar[type[Text]]  # what `build_text` returns
    needs_references = True  # in training and validation

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int = 16,
        eval_batch_size: int | None = None,
        text: Path | None = None,
        cache_dir: Path | None = None,
        on_bad_record: Literal["raise", "skip"] = "raise",
        max_train: int | None = None,
        max_eval: int | None = None,
        num_workers: int = 0,
        num_proc: int = 1,
        pool: int = 50,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("batch_size", batch_size), ("eval_batch_size", eval_batch_size), ("num_proc", num_proc)):
            if value is not None and value < 1:
                raise ValueError(f"data.{name} must be at least 1, got {value}")
        self.corpus, self.batch_size, self.eval_batch_size = corpus, batch_size, eval_batch_size or batch_size
        self.text_dir, self.cache_dir = text, Path(cache_dir) if cache_dir else default_cache()
        self.on_bad_record = on_bad_record
        self.limits = {TRAIN: max_train, VAL: max_eval, TEST: max_eval}
        self.num_workers, self.num_proc, self.pool = num_workers, num_proc, pool
        self.seed = order_seed(seed)
        self.text: Text | None = None
        self._documents: dict[str, datasets.Dataset] = {}
        self._features: dict[str, datasets.Dataset] = {}
        self.truncation: dict[str, list[TruncationRow]] = {}  # by split; on rank 0

    # What a paper says -------------------------------------------------------------------------------------------

    @abstractmethod
    def build_text(self, train: datasets.Dataset) -> Text:
        """Vocabulary or tokenizer of the training documents."""

    def load_text(self, folder: Path) -> Text:
        """What `Text.save` wrote."""
        return self.text_type.load(folder)

    @abstractmethod
    def text_settings(self) -> dict[str, Any]:
        """Plain values that `build_text` depends on: the key of its cache."""

    @abstractmethod
    def feature_settings(self) -> dict[str, Any]:
        """Plain values that `encode` depends on beside the text: the key of its cache."""

    @abstractmethod
    def encode(self, document: Document) -> dict[str, Any]:
        """Features of one document, with its `length` (what batches are sorted by)."""

    @abstractmethod
    def collate(self, rows: list[dict[str, Any]]) -> Batch:
        """A batch of encoded documents."""

    def save_text(self, folder: Path) -> None:
        """Writes to a run folder what features are made with; a run is read back with `text` as that folder."""
        self.text.save(folder)

    def truncation_limits(self) -> dict[str, str]:
        """What `encode` counts in the column `truncation`, each with the option that cuts it."""
        return {}

    # The life of the data ----------------------------------------------------------------------------------------

    def documents(self, split: str) -> datasets.Dataset:
        """The documents of a split, built if the cache lacks them."""
        if split not in self._documents:
            data = build_documents(
                self.corpus,
                split,
                self.cache_dir,
                on_bad_record=self.on_bad_record,
                num_proc=self.num_proc,
                require_references=self.needs_references and split != TEST,
            )
            limit = self.limits[split]
            self._documents[split] = data if limit is None else data.select(range(min(limit, len(data))))
        return self._documents[split]

    def digest(self, split: str) -> str:
        """What identifies the documents of a split."""
        return _digest(read_manifest(self.documents(split))["digest"], self.limits[split])

    def features(self, split: str) -> datasets.Dataset:
        """The encoded documents of a split, encoded if the cache lacks them."""
        if split not in self._features:
            documents = self.documents(split)
            settings = [FEATURES_VERSION, self.feature_settings()]
            key = _digest(type(self).__name__, self.digest(split), self.text.state(), settings)
            self._features[split] = self._cached_features(documents, key, f"encoding {split}")
            self._report_truncation(split)
        return self._features[split]

    def _cached_features(self, documents: datasets.Dataset, key: str, title: str) -> datasets.Dataset:
        """Features from the cache; where they are not in it, they are built beside it and then moved into it."""
        folder = self.cache_dir / "features"
        processes = min(self.num_proc, len(documents))
        names = [f"{key}.arrow"]
        if processes > 1:  # as `Dataset.map` names them
            names = [f"{key}_{rank:05d}_of_{processes:05d}.arrow" for rank in range(processes)]
        options = {"num_proc": processes if processes > 1 else None, "new_fingerprint": key, "desc": title}
        if not all((folder / name).exists() for name in names):
            with building_folder(folder) as building:
                self.encode_all(documents, cache_file_name=str(building / f"{key}.arrow"), **options)
                for name in names:
                    (building / name).replace(folder / name)
        return self.encode_all(documents, cache_file_name=str(folder / f"{key}.arrow"), **options)

    @rank_zero_only
    def _report_truncation(self, split: str) -> None:
        """Counts what is cut off the documents of a split, and says so in one line; once for each split."""
        if split in self.truncation or not self.truncation_limits():
            return
        self.truncation[split] = truncation_rows(split, self._features[split], self.truncation_limits())
        if line := truncation_line(self.truncation[split]):
            rank_zero_info(line)

    def encode_all(self, documents: datasets.Dataset, **caching: Any) -> datasets.Dataset:
        """Features of documents, a row each; `caching` is handed to `Dataset.map`."""
        return documents.map(partial(_encode_row, self._alone()), remove_columns=["parts"], **caching)

    def with_corpus(self, corpus: Corpus, cache_dir: Path, eval_batch_size: int | None = None) -> Self:
        """Return a DataModule over other documents, with the same text and options.

        Args:
            corpus: where the documents come from.
            cache_dir: folder for what is derived from them.
            eval_batch_size: documents in a batch; as many as before if not given.
        """
        other = copy.copy(self)
        other.trainer, other._documents, other._features, other.truncation = None, {}, {}, {}
        other.corpus, other.cache_dir = corpus, Path(cache_dir)
        other.eval_batch_size = eval_batch_size or self.eval_batch_size
        return other

    def _alone(self) -> Self:
        """A copy that can encode and travels to other processes: without trainer, corpus and datasets."""
        alone = copy.copy(self)
        alone.trainer, alone.corpus, alone._documents, alone._features, alone.truncation = None, None, {}, {}, {}
        return alone

    def _splits(self, stage: str | None) -> list[str]:
        wanted = {"fit": [TRAIN, VAL], "validate": [VAL], "test": [TEST], "predict": [TEST]}
        return wanted.get(stage or "", [TRAIN, VAL, TEST])

    def _text_folder(self) -> Path:
        if self.text_dir is not None:
            return Path(self.text_dir)
        return self.cache_dir / "text" / _digest(self.digest(TRAIN), self.text_settings())

    def prepare_data(self) -> None:
        """Builds documents, text and features into the cache (one process does, the others find them)."""
        self.prepare_splits(self._splits(self.trainer.state.fn.value if self.trainer is not None else None))

    def prepare_splits(self, splits: list[str]) -> None:
        """The same for some splits; the text is that of the training split whichever they are."""
        folder = self._text_folder()
        if self.text_dir is None and not folder.exists():
            with appearing_folder(folder) as building:
                self.build_text(self.documents(TRAIN)).save(building)
        self.text = self.load_text(folder)
        for split in splits:
            self.features(split)

    def setup(self, stage: str) -> None:
        """Loads text and features from the cache."""
        self.text = self.load_text(self._text_folder())
        for split in self._splits(stage):
            self.features(split)

    # Loaders -----------------------------------------------------------------------------------------------------

    def _loader(self, split: str, shuffle: bool, batch_size: int) -> ResumableLoader:
        data = self.features(split)
        trainer = self.trainer
        world = trainer.world_size if trainer is not None else 1
        if len(data) < world:
            raise CorpusError(f"{split}: {len(data)} document(s) for {world} processes; lower --trainer.devices")
        sampler = BatchSampler(
            data["length"][:],
            batch_size,
            shuffle=shuffle,
            seed=self.seed,
            pool=self.pool,
            num_replicas=world,
            rank=trainer.global_rank if trainer is not None else 0,
        )
        return ResumableLoader(data, sampler, self.collate, self.num_workers)

    def train_dataloader(self) -> ResumableLoader:
        """Shuffled batches."""
        return self._loader(TRAIN, True, self.batch_size)

    def val_dataloader(self) -> ResumableLoader:
        """Validation documents in their order."""
        return self._loader(VAL, False, self.eval_batch_size)

    def test_dataloader(self) -> ResumableLoader:
        """Test documents in their order."""
        return self._loader(TEST, False, self.eval_batch_size)

    def predict_dataloader(self) -> ResumableLoader:
        """Test documents in their order."""
        return self.test_dataloader()


def all_texts(train: datasets.Dataset) -> Iterator[str]:
    """Yield the paragraphs and references of documents, of which vocabularies and tokenizers are made."""
    return (" ".join(sentences) for row in train for sentences in (*row["parts"], *row["references"]))


def _encode_row(data: SummarizationData, row: dict[str, Any]) -> dict[str, Any]:
    return data.encode(as_document(row))


def _digest(*values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:24]
