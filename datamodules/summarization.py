"""`SummarizationData`: from a corpus to batches, for every model of the suite."""

import copy
import json
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

from pytorch_lightning import LightningDataModule
from pytorch_lightning.utilities import rank_zero_info, rank_zero_only

from datamodules.atomic_write import appearing_folder, building_folder
from datamodules.batch import Batch
from datamodules.cache_folder import default_cache
from datamodules.corpora.corpus import Corpus, as_document, build_documents, no_split, read_manifest
from datamodules.corpora.files import Files
from datamodules.documents import Document, UserError
from datamodules.loading import ResumableLoader, at_least, loader_of, order_seed
from datamodules.text.hashing import text_digest
from datamodules.text.language import ANY, language_of, script_of
from datamodules.truncation import TRUNCATION, TruncationRow, truncation_line, truncation_rows

if TYPE_CHECKING:
    import datasets  # imported when documents are read: models only need the types of batches

TRAIN, VAL, TEST = "train", "val", "test"
FEATURES_VERSION = 3  # raised whenever features change; 2: counts of truncation, 3: `oov_words`


class SavableTokenizer(Protocol):
    """Vocabulary or tokenizer that maps text to ids."""

    def __len__(self) -> int: ...
    def state(self) -> dict[str, Any]: ...
    def save(self, folder: Path) -> None: ...
    @classmethod
    def load(cls, folder: Path) -> Self: ...


class SummarizationData(LightningDataModule, ABC):
    """Base class of DataModules for summarization.

    Subclasses define the tokenizer (`build_tokenizer`, `load_tokenizer`), the features of a document (`encode`),
    batches of features (`collate`), and the options that truncate documents (`truncation_limits`). Truncation is
    counted by `encode` and reported once for each split. Documents, tokenizer and features are built once, in
    `prepare_data` on rank 0, and kept in the cache.

    Args:
        corpus: corpus of the documents.
        batch_size: number of documents per rank in a training batch.
        eval_batch_size: number of documents per rank in validation, test and prediction; by default `batch_size`.
        tokenizer_dir: folder with the tokenizer of an earlier run (`RUN/text`), used instead of building one.
        cache_dir: folder of caches; by default `$PRECIS_CACHE` or `~/.cache/precis`.
        on_bad_record: `raise` stops at an invalid record, `skip` leaves it out with a warning.
        max_train: maximum number of training documents; all by default.
        train_subset: documents that `max_train` keeps: the `first`, or a `random` sample, the same for all seeds. In
            corpora that are sorted by source or date, the first documents are unlike those of other splits.
        max_eval: maximum number of documents of validation, test and prediction, from the beginning; all by default.
        num_workers: number of loader processes per rank; by default none on a CPU, up to 4 with a GPU.
        num_proc: number of processes that split sentences and encode documents.
        pool: number of global batches that are sorted by length together, see `BatchSampler`.
        seed: seed of the training order; by default that of the run (`seed_everything`).
        language: ISO code of the language of the corpus, by whose rules sentences are split and words counted
            everywhere, also in ROUGE, oracle labels and rewards; `xx` for any.
    """

    batch_type: ClassVar[type[Batch]] = Batch  # what `collate` makes
    tokenizer_type: ClassVar[type[SavableTokenizer]]  # what `build_tokenizer` returns
    needs_references = True  # in training and validation
    repeats = 1  # number of times each training batch is delivered; set by callbacks that update on it repeatedly

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int = 16,
        eval_batch_size: int | None = None,
        tokenizer_dir: Path | None = None,
        cache_dir: Path | None = None,
        on_bad_record: Literal["raise", "skip"] = "raise",
        max_train: int | None = None,
        train_subset: Literal["first", "random"] = "first",
        max_eval: int | None = None,
        num_workers: int | None = None,
        num_proc: int = 1,
        pool: int = 50,
        seed: int | None = None,
        language: str = "en",
    ) -> None:
        super().__init__()
        at_least(1, batch_size=batch_size, eval_batch_size=eval_batch_size, num_proc=num_proc)
        self.corpus = corpus
        self.on_bad_record = on_bad_record
        self.tokenizer_dir = tokenizer_dir
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size or batch_size
        self.cache_dir = Path(cache_dir) if cache_dir else default_cache()
        self.limits = {TRAIN: max_train, VAL: max_eval, TEST: max_eval}  # maximum numbers of documents, None for all
        self.train_subset = train_subset
        self.num_workers = num_workers
        self.num_proc = num_proc
        self.pool = pool
        self.seed = order_seed(seed)  # None is the seed of the run, or 0
        self.language = language_of(language)
        self.tokenizer: SavableTokenizer | None = None  # loaded by `prepare_data` and `setup`
        self._documents: dict[str, datasets.Dataset] = {}  # by split, filled on first use by `documents`
        self._features: dict[str, datasets.Dataset] = {}  # by split, filled on first use by `features`
        self.truncation: dict[str, list[TruncationRow]] = {}  # by split, a row for each limit; on rank 0 only

    @abstractmethod
    def build_tokenizer(self, train: "datasets.Dataset") -> SavableTokenizer:
        """Build the vocabulary or tokenizer from the training documents."""

    def load_tokenizer(self, folder: Path) -> SavableTokenizer:
        """Load what `SavableTokenizer.save` wrote."""
        return self.tokenizer_type.load(folder)

    @abstractmethod
    def tokenizer_settings(self) -> dict[str, Any]:
        """Return plain values that `build_tokenizer` depends on, for the cache key."""

    @abstractmethod
    def feature_settings(self) -> dict[str, Any]:
        """Return plain values that `encode` depends on besides the tokenizer, for the cache key."""

    @abstractmethod
    def encode(self, document: Document) -> dict[str, Any]:
        """Return the features of a document, with its `length` for sorting."""

    @abstractmethod
    def collate(self, rows: list[dict[str, Any]]) -> Batch:
        """Collate encoded documents to a batch."""

    def save_tokenizer(self, folder: Path) -> None:
        """Write the tokenizer to a folder, from which `tokenizer_dir` reads it back."""
        folder.mkdir(parents=True, exist_ok=True)
        self.tokenizer.save(folder)

    def truncation_limits(self) -> dict[str, str]:
        """Return the option that limits each count of the column `truncation`; {} to report none."""
        return {}

    def documents(self, split: str) -> "datasets.Dataset":
        """Return the documents of a split, at most `max_train` or `max_eval`, from the cache if possible."""
        if split not in self._documents:
            require_references = self.needs_references and split != TEST  # prediction reads `test` and needs none
            table = build_documents(
                self.corpus, split, self.cache_dir, on_bad_record=self.on_bad_record, num_proc=self.num_proc,
                language=self.language.code, require_references=require_references,
            )  # fmt: skip
            self._documents[split] = self._limited(split, table)
        return self._documents[split]

    def _limited(self, split: str, documents: "datasets.Dataset") -> "datasets.Dataset":
        """Return at most `max_train` or `max_eval` documents of a split, in the order of the corpus."""
        limit = self.limits[split]
        if limit is None or limit >= len(documents):
            return documents
        if split == TRAIN and self.train_subset == "random":
            rng = random.Random(0)  # not the seed of the run, so that runs with several seeds train on the same sample
            return documents.select(sorted(rng.sample(range(len(documents)), limit)))
        return documents.select(range(limit))

    def digest(self, split: str) -> str:
        """Return a digest of the documents of a split and of the arguments that limit them, for cache keys."""
        limit = [self.limits[split]]
        if split == TRAIN and self.train_subset == "random":
            limit.append("random")  # the default `first` adds nothing: caches from before this option remain valid
        return _digest(read_manifest(self.documents(split))["digest"], *limit)

    def features(self, split: str) -> "datasets.Dataset":
        """Return the encoded documents of a split, from the cache if possible."""
        if split not in self._features:
            settings = [FEATURES_VERSION, self.feature_settings(), *self.language.setting.values()]  # none for `en`
            settings += _users_code(self)
            key = _digest(type(self).__name__, self.digest(split), self.tokenizer.state(), settings)
            self._features[split] = self._cached_features(self.documents(split), key, f"encoding {split}")
            self._report_truncation(split)
            self.on_new_features(split)  # checks and additions of subclasses
        return self._features[split]

    def on_new_features(self, split: str) -> None:
        """Called after `features` loads a split, for subclasses that check or complete it; does nothing here."""

    def _cached_features(self, documents: "datasets.Dataset", key: str, progress_title: str) -> "datasets.Dataset":
        """Return the features in the cache files named by `key`, encoding the documents first if a file is missing."""
        folder = self.cache_dir / "features"
        processes = min(self.num_proc, len(documents))
        names = [f"{key}.arrow"]
        if processes > 1:  # `Dataset.map` writes a file for each process, with this suffix
            names = [f"{key}_{rank:05d}_of_{processes:05d}.arrow" for rank in range(processes)]
        options = {"num_proc": processes if processes > 1 else None, "new_fingerprint": key, "desc": progress_title}
        if not all((folder / name).exists() for name in names):
            with building_folder(folder) as building:
                self.encode_all(documents, cache_file_name=str(building / f"{key}.arrow"), **options)
                for name in names:  # an atomic move, so that other processes only see complete files
                    (building / name).replace(folder / name)
        # opens the moved files: if there are files of these names, `Dataset.map` does not encode
        return self.encode_all(documents, cache_file_name=str(folder / f"{key}.arrow"), **options)

    @rank_zero_only
    def _report_truncation(self, split: str) -> None:
        """Set `truncation` of a split and print in one line how much is truncated, when called first for the split."""
        counted = TRUNCATION in self._features[split].column_names  # not by every `encode` of users
        if split in self.truncation or not counted or not self.truncation_limits():
            return
        self.truncation[split] = truncation_rows(split, self._features[split], self.truncation_limits())
        if line := truncation_line(self.truncation[split]):
            rank_zero_info(line)

    def encode_all(self, documents: "datasets.Dataset", **caching: Any) -> "datasets.Dataset":
        """Return a table with the features of each document; `caching` are arguments of `Dataset.map`."""
        return documents.map(partial(_encode_row, self._for_workers()), remove_columns=["parts"], **caching)

    def with_corpus(self, corpus: Corpus, cache_dir: Path, eval_batch_size: int | None = None) -> Self:
        """Return a copy for summarizing another corpus with the same tokenizer and options, and with its own cache."""
        data = self._copy(corpus)
        data.cache_dir = Path(cache_dir)
        data.eval_batch_size = eval_batch_size or self.eval_batch_size
        return data

    def _for_workers(self) -> Self:
        """Return a shallow copy without trainer, corpus and datasets, which is cheap to send to other processes."""
        return self._copy(corpus=None)

    def _copy(self, corpus: Corpus | None) -> Self:
        """Return a shallow copy with another corpus, and without the trainer and what was read of this corpus."""
        data = copy.copy(self)
        data.trainer = None
        data.corpus = corpus
        data._documents = {}
        data._features = {}
        data.truncation = {}
        return data

    def _splits(self, stage: str | None) -> list[str]:
        """Return the splits that a stage of Lightning reads; all of them without a stage."""
        splits = {"fit": [TRAIN, VAL], "validate": [VAL], "test": [TEST], "predict": [TEST]}
        return splits.get(stage, [TRAIN, VAL, TEST])

    def _tokenizer_folder(self) -> Path:
        if self.tokenizer_dir is not None:
            return Path(self.tokenizer_dir)
        return self.cache_dir / "text" / _digest(self.digest(TRAIN), self.tokenizer_settings(), *_users_code(self))

    def prepare_data(self) -> None:
        """Build documents, tokenizer and features into the cache, in one process.

        Raises:
            UserError: if the corpus lacks a split that this command reads, or if the language is English but most
                letters of the documents are not Latin.
        """
        splits = self._splits(self.trainer.state.fn.value if self.trainer is not None else None)  # all without a run
        for split in splits:
            if split not in self.corpus.splits():
                remedy = f"name a source for it with --data.corpus.{split}"
                if split == VAL and isinstance(self.corpus, Files):
                    remedy += ", or take a share of the training documents with --data.corpus.split"
                if split == TEST:
                    remedy += ", or score the validation split with precis validate --run"
                raise UserError(f"{no_split(self.corpus, split)}; {remedy}")
        self._check_language(splits[0])  # the other splits are in the same language
        self.prepare_splits(splits)

    def _check_language(self, split: str) -> None:
        """Raise a `UserError` if the language is English, and most letters of the first documents are not Latin."""
        if not self.language.is_english:
            return
        documents = self.documents(split)
        sample = documents.select(range(min(100, len(documents))))  # enough to tell the script
        script = script_of(all_texts(sample))  # None if there are no letters
        if script and script.latin < 0.5:
            raise UserError(
                f"data.language is {self.language.code}, but {script.share:.0%} of the letters in the {split} "
                f"documents are {script.name}, which English scores do not count; give --data.language "
                f"{script.language}, or the code of their language ({ANY} for any, whatever the script)"
            )

    def prepare_splits(self, splits: list[str]) -> None:
        """Build tokenizer (from the training split, unless `tokenizer_dir` is set) and features of some splits."""
        folder = self._tokenizer_folder()  # `tokenizer_dir`, or a cache folder for these documents and settings
        if self.tokenizer_dir is None and not folder.exists():
            with appearing_folder(folder) as building:  # renamed to `folder` when complete
                self.build_tokenizer(self.documents(TRAIN)).save(building)
        self.tokenizer = self.load_tokenizer(folder)
        for split in splits:
            self.features(split)

    def setup(self, stage: str) -> None:
        """Load tokenizer and features from the cache."""
        self.tokenizer = self.load_tokenizer(self._tokenizer_folder())
        for split in self._splits(stage):
            self.features(split)

    def _loader(self, split: str, shuffle: bool, batch_size: int) -> ResumableLoader:
        features = self.features(split)  # below, `repeats`: deliveries of each batch; `shuffle` is for training only
        order = {"shuffle": shuffle, "seed": self.seed, "pool": self.pool, "repeats": self.repeats if shuffle else 1}
        lengths = features["length"][:]  # as a list, because a column reads the file at each access
        return loader_of(features, lengths, batch_size, _Collate(self), split, self.trainer, self.num_workers, **order)

    def scored_documents(self, split: str) -> Iterator[Document]:
        """Yield the documents of a split with the references that their summaries are scored against."""
        return map(as_document, self.documents(split))

    def train_dataloader(self) -> ResumableLoader:
        return self._loader(TRAIN, True, self.batch_size)

    def val_dataloader(self) -> ResumableLoader:
        return self._loader(VAL, False, self.eval_batch_size)

    def test_dataloader(self) -> ResumableLoader:
        return self._loader(TEST, False, self.eval_batch_size)

    def predict_dataloader(self) -> ResumableLoader:
        return self.test_dataloader()


def all_texts(train: "datasets.Dataset") -> Iterator[str]:
    """Yield the paragraphs and references of documents, from which vocabularies and tokenizers are built."""
    return (" ".join(sentences) for row in train for sentences in (*row["parts"], *row["references"]))


class _Collate:
    """`collate` of a DataModule, also in processes that are not forked: they get a copy that can be pickled."""

    def __init__(self, data: SummarizationData) -> None:
        self.data = data

    def __call__(self, rows: list[dict[str, Any]]) -> Batch:
        return self.data.collate(rows)

    def __getstate__(self) -> dict[str, Any]:
        return {"data": self.data._for_workers()}


def _encode_row(data: SummarizationData, row: dict[str, Any]) -> dict[str, Any]:
    return data.encode(as_document(row))


def _users_code(data: SummarizationData) -> list[str]:
    """Return, for cache keys, the code of its class and bases that are not of the suite, if it is in files."""
    modules = {base.__module__ for base in type(data).__mro__ if issubclass(base, SummarizationData)}
    users = sorted(name for name in modules if not name.startswith("datamodules."))
    files = [getattr(sys.modules[name], "__file__", None) for name in users]
    return [Path(file).read_text(encoding="utf-8", errors="replace") for file in files if file and Path(file).is_file()]


def _digest(*values: Any) -> str:
    return text_digest(json.dumps(values, sort_keys=True, default=str))[:24]
