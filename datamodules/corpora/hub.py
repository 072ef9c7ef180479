"""Corpora of the Hugging Face hub."""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datamodules.corpora.corpus import Corpus
from datamodules.corpora.fields import DocumentList, Fields, Paragraphs, Sentences, SummaryList
from datamodules.documents import BadRecord, Record, UserError
from datamodules.text.hashing import file_digest

if TYPE_CHECKING:  # imported when something is loaded: commands that load nothing answer faster
    from datasets import Dataset, IterableDataset


@dataclass(frozen=True)
class Source:
    """Location and layout of a dataset."""

    name: str  # repository on the hub, or a local folder
    fields: Fields  # names and layout of the columns
    config: str | None = None  # name of a configuration of the dataset
    revision: str | None = None  # branch, tag or commit
    folder: str | None = None  # folder within the repository that holds the splits
    # our name of each split, and its name or slice in the repository
    splits: dict[str, str] = field(default_factory=lambda: {"train": "train", "val": "validation", "test": "test"})


# Branch with Parquet files of datasets whose main branch has a loading script, which `datasets` no longer runs.
_PARQUET = {"revision": "refs/convert/parquet", "folder": "default"}
_PAPER = Fields("article", "abstract", paragraphs="none")
_LAY = Fields("article", "summary", paragraphs="line")
_NEWS = Fields("article", "highlights", id="id", paragraphs="line", summary_sentences="line")
# The abstract of the paper, followed by those of the cited papers.
_CITED = Fields(("abstract", "ref_abstract.abstract"), "related_work", paragraphs="none")
_ABSTRACT = Fields("source", "target", id="paper_id", document_list="sentences")
# There is no published validation split of BillSum; the last 5 % of train replace it.
_BILLS = {"train": "train[:95%]", "val": "train[95%:]", "test": "test"}

SOURCES = {
    "cnn_dailymail": Source("abisee/cnn_dailymail", _NEWS, config="3.0.0"),
    "xsum": Source("EdinburghNLP/xsum", Fields("document", "summary", id="id", paragraphs="line"), **_PARQUET),
    "multi_news": Source("alexfabbri/multi_news", Fields("document", "summary", separator="|||||"), **_PARQUET),
    "multi_xscience": Source("yaolu/multi_x_science_sum", _CITED, **_PARQUET),
    "scitldr": Source("allenai/scitldr", _ABSTRACT, **_PARQUET | {"folder": "Abstract"}),
    "aeslc": Source("Yale-LILY/aeslc", Fields("email_body", "subject_line", paragraphs="line")),
    "arxiv": Source("ccdv/arxiv-summarization", _PAPER, config="document"),
    "pubmed": Source("ccdv/pubmed-summarization", _PAPER, config="document"),
    "booksum": Source("kmfoda/booksum", Fields("chapter", "summary_text")),
    "elife": Source("BioLaySumm/BioLaySumm2025-eLife", _LAY),
    "plos": Source("BioLaySumm/BioLaySumm2025-PLOS", _LAY),
    "multi_lexsum": Source(
        "allenai/multi_lexsum", Fields("sources", "summary/long", id="id"), **_PARQUET | {"folder": "v20230518"}
    ),
    "billsum": Source("FiscalNote/billsum", Fields("text", "summary"), splits=_BILLS),
    "gov_report": Source("ccdv/govreport-summarization", Fields("report", "summary"), config="document"),
}


class Hub(Corpus):
    """A dataset of the Hugging Face hub, downloaded once to the cache of `datasets`.

    Args:
        name: one of `SOURCES` (cnn_dailymail, xsum, multi_news, multi_xscience, scitldr, aeslc, arxiv, pubmed, booksum,
            elife, plos, multi_lexsum, billsum, gov_report), a repository of the hub, or a local folder that
            `datasets.load_dataset` reads. The other arguments override the entry of `SOURCES`.
        config: configuration of the dataset, if its repository has several.
        revision: branch, tag or commit.
        folder: folder within the repository that holds the splits.
        train: name of this split in the repository, or a slice ("train[:95%]").
        val: the same.
        test: the same.
        stream: read the splits over the network while documents are built, without a copy of the whole dataset, as for
            pre-training on the beginning of a huge dataset; slices of splits cannot be streamed.
        max_records: maximum number of records read from the start of each split.
        document: column that holds the text or a list of texts, "outer.inner" for nested columns. For this and the
            following arguments see `Fields`.

    Raises:
        UserError: if an argument has an invalid value; on reading, if the dataset cannot be loaded.
    """

    def __init__(
        self,
        name: str,
        config: str | None = None,
        revision: str | None = None,
        folder: str | None = None,
        train: str | None = None,
        val: str | None = None,
        test: str | None = None,
        stream: bool = False,
        max_records: int | None = None,
        document: str | list[str] | None = None,
        summary: str | list[str] | None = None,
        id: str | None = None,
        paragraphs: Paragraphs | None = None,
        separator: str | None = None,
        document_list: DocumentList | None = None,
        document_sentences: Sentences | None = None,
        summary_list: SummaryList | None = None,
        summary_sentences: Sentences | None = None,
        skip_parts: int | None = None,
    ) -> None:
        if max_records is not None and max_records < 1:
            raise UserError(f"corpus.max_records {max_records}: at least 1")
        self.stream = stream
        self.max_records = max_records
        source = SOURCES.get(name, Source(name, Fields()))  # location and columns: known ones, or the defaults
        fields = {  # None keeps the value of the entry of `SOURCES`
            "document": document, "summary": summary, "id": id, "paragraphs": paragraphs, "separator": separator,
            "document_list": document_list, "document_sentences": document_sentences,
            "summary_list": summary_list, "summary_sentences": summary_sentences, "skip_parts": skip_parts,
        }  # fmt: skip
        location = {"config": config, "revision": revision, "folder": folder}
        splits = source.splits | _not_none({"train": train, "val": val, "test": test})
        fields = replace(source.fields, **_not_none(fields))
        self.source = replace(source, fields=fields, splits=splits, **_not_none(location))
        self._in_sources = name in SOURCES  # then its splits are known without the network
        self._loaded: dict[str, Dataset | IterableDataset] = {}  # by split, filled on first use

    def splits(self) -> list[str]:
        """Return the splits of the dataset; those of an entry of `SOURCES` are known without the network."""
        if self._in_sources:
            return list(self.source.splits)
        # the name of a slice such as "train[:95%]" ends before its bracket
        return [split for split, name in self.source.splits.items() if name.split("[")[0] in self._published]

    def records(self, split: str) -> Iterator[Record | BadRecord]:
        source = self.source
        dataset = self._dataset(split)
        names = dataset.column_names or []  # None for some streams, before their first row
        columns = [name for name in source.fields.names if name in names]
        rows = dataset.select_columns(columns) if columns else dataset  # reads only these, or all if none is known yet
        unread = dict.fromkeys(name for name in names if name not in columns)  # None, so that messages list them
        for number, row in enumerate(islice(self._read(rows), self.max_records)):
            where = f"{source.name} {source.splits[split]} row {number}"
            yield source.fields.record(row | unread, where, f"{split}-{number}")

    def _read(self, rows: "Dataset | IterableDataset") -> Iterator[dict[str, Any]]:
        """Yield rows; raise a `UserError` if reading fails, for which `datasets` has errors of several types."""
        from huggingface_hub.errors import HfHubHTTPError

        try:
            yield from rows
        except (OSError, ValueError, RuntimeError, HfHubHTTPError) as error:
            raise UserError(f"{self.source.name}: cannot be read ({_reason(error)}); run the command again") from error

    def fingerprint(self, split: str) -> str:
        """Return the arguments and a digest of the files; for a stream, which has no files, a digest of its version."""
        source = self.source
        dataset = self._dataset(split)
        digest = hashlib.sha256()
        if self.stream:
            digest.update(self._stream_version().encode())
        else:
            for file in dataset.cache_files:
                digest.update(bytes.fromhex(file_digest(Path(file["filename"]))))
        location = [source.name, source.config, source.revision, source.folder, source.splits[split]]
        limit = "" if self.max_records is None else f" first {self.max_records}"
        return f"hub {location} {digest.hexdigest()} {sorted(asdict(source.fields).items())}{limit}"

    def _stream_version(self) -> str:
        """Return what identifies streamed data: the commit, or sizes and times of the files of a local folder."""
        source = self.source
        folder = Path(source.name)
        if folder.is_dir():
            files = {path: path.stat() for path in sorted(folder.rglob("*")) if path.is_file()}
            return repr([(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in files.items()])
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError

        try:
            return HfApi().dataset_info(source.name, revision=source.revision).sha
        except (HfHubHTTPError, OSError) as error:
            raise UserError(f"{source.name}: not found ({_reason(error)}); check its name and the network") from error

    @cached_property
    def _published(self) -> list[str]:
        """Names of the splits in the repository."""
        from datasets import get_dataset_split_names

        return self._call_with_location(get_dataset_split_names)

    def _dataset(self, split: str) -> "Dataset | IterableDataset":
        """Load a split, once. If a field is a nested column "outer.inner", all nested columns become columns."""
        from datasets import load_dataset

        if split not in self._loaded:
            dataset = self._call_with_location(load_dataset, split=self.source.splits[split], streaming=self.stream)
            names = dataset.column_names or []  # None for some streams
            nested = [name for name in self.source.fields.names if name not in names and "." in name]
            if nested and self.stream:
                raise UserError(f"{self.source.name}: column {nested[0]!r} is nested, which `stream` does not read")
            self._loaded[split] = dataset.flatten() if nested else dataset
        return self._loaded[split]

    def _call_with_location(self, function, **kwargs):
        """Call a function of `datasets` with the location of the source and `kwargs`; its errors become `UserError`."""
        source = self.source
        location = _not_none({"revision": source.revision, "data_dir": source.folder})
        try:
            return function(source.name, source.config, **location, **kwargs)
        except Exception as error:  # the network, the hub and every file format raise errors of their own
            remedy = "check its name, config and splits and the network, or name a folder with a copy of it"
            raise UserError(f"{source.name}: the dataset cannot be loaded ({_reason(error)}); {remedy}") from error


def _reason(error: Exception) -> str:
    """Return type and text of an error on one line; some texts are long, but 300 characters suffice for the cause."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _not_none(arguments: dict) -> dict:
    return {name: value for name, value in arguments.items() if value is not None}
