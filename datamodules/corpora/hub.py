"""Corpora of the Hugging Face hub."""

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from datasets import Dataset, get_dataset_split_names, load_dataset

from datamodules.corpora.corpus import Corpus
from datamodules.corpora.fields import DocumentList, Fields, Paragraphs, Sentences, SummaryList
from datamodules.documents import BadRecord, CorpusError, Record


@dataclass(frozen=True)
class Source:
    """Where a dataset lies, and how to read it.

    Attributes:
        name: repository on the hub, or a local folder.
        config: the repository's name for one of its variants.
        revision: branch, tag or commit.
        folder: folder within the repository that holds the splits.
        splits: the repository's name for each of ours, a slice perhaps.
        fields: which columns hold what.
    """

    name: str
    fields: Fields
    config: str | None = None
    revision: str | None = None
    folder: str | None = None
    splits: tuple[tuple[str, str], ...] = (("train", "train"), ("val", "validation"), ("test", "test"))


# What is a loading script on the main branch (which nobody runs any more) is Parquet on this one.
_PARQUET = "refs/convert/parquet"
_PAPER = Fields("article", "abstract", paragraphs="none")
_LAY = Fields("article", "summary", paragraphs="line")

SOURCES = {
    "cnn_dailymail": Source(
        "abisee/cnn_dailymail",
        Fields("article", "highlights", id="id", paragraphs="line", summary_sentences="line"),
        config="3.0.0",
    ),
    "xsum": Source(
        "EdinburghNLP/xsum",
        Fields("document", "summary", id="id", paragraphs="line"),
        revision=_PARQUET,
        folder="default",
    ),
    "multi_news": Source(
        "alexfabbri/multi_news",
        Fields("document", "summary", separator="|||||"),
        revision=_PARQUET,
        folder="default",
    ),
    # The paper's own abstract, then those of the papers it cites.
    "multi_xscience": Source(
        "yaolu/multi_x_science_sum",
        Fields(("abstract", "ref_abstract.abstract"), "related_work", paragraphs="none"),
        revision=_PARQUET,
        folder="default",
    ),
    "scitldr": Source(
        "allenai/scitldr",
        Fields("source", "target", id="paper_id", document_list="sentences"),
        revision=_PARQUET,
        folder="Abstract",
    ),
    "arxiv": Source("ccdv/arxiv-summarization", _PAPER, config="document"),
    "pubmed": Source("ccdv/pubmed-summarization", _PAPER, config="document"),
    "booksum": Source("kmfoda/booksum", Fields("chapter", "summary_text")),
    "elife": Source("BioLaySumm/BioLaySumm2025-eLife", _LAY),
    "plos": Source("BioLaySumm/BioLaySumm2025-PLOS", _LAY),
    "multi_lexsum": Source(
        "allenai/multi_lexsum",
        Fields("sources", "summary/long", id="id"),
        revision=_PARQUET,
        folder="v20230518",
    ),
    # No validation split is published: the last twentieth of train stands in for it.
    "billsum": Source(
        "FiscalNote/billsum",
        Fields("text", "summary"),
        splits=(("train", "train[:95%]"), ("val", "train[95%:]"), ("test", "test")),
    ),
    "gov_report": Source("ccdv/govreport-summarization", Fields("report", "summary"), config="document"),
}


class Hub(Corpus):
    """A dataset of the Hugging Face hub, downloaded once into its own cache.

    Args:
        name: one of `SOURCES` (cnn_dailymail, xsum, multi_news, multi_xscience, scitldr, arxiv, pubmed, booksum, elife,
            plos, multi_lexsum, billsum, gov_report), a repository of the hub, or a local folder that
            `datasets.load_dataset` reads. All that follows overrides what is known of the name.
        config: variant of the dataset, where its repository has several.
        revision: branch, tag or commit.
        folder: folder within the repository that holds the splits.
        train: the repository's name for this split, or a slice of one ("train[:95%]").
        val: the same.
        test: the same.
        document: column that holds the text, or a list of texts; of a column with columns of its own, "outer.inner". It
            and all that follows: see `Files`.

    Raises:
        CorpusError: if an argument has none of its values; on reading, if the dataset cannot be had.
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
        source = SOURCES.get(name, Source(name, Fields()))
        fields = {
            "document": tuple(document) if isinstance(document, list) else document,
            "summary": tuple(summary) if isinstance(summary, list) else summary,
            "id": id,
            "paragraphs": paragraphs,
            "separator": separator,
            "document_list": document_list,
            "document_sentences": document_sentences,
            "summary_list": summary_list,
            "summary_sentences": summary_sentences,
            "skip_parts": skip_parts,
        }
        place = {"config": config, "revision": revision, "folder": folder}
        splits = dict(source.splits) | _given({"train": train, "val": val, "test": test})
        self.source = replace(
            source, fields=replace(source.fields, **_given(fields)), splits=tuple(splits.items()), **_given(place)
        )
        self._known = name in SOURCES
        self._loaded: dict[str, Dataset] = {}

    def splits(self) -> list[str]:
        return [ours for ours, theirs in self.source.splits if self._known or theirs.split("[")[0] in self._published]

    def records(self, split: str) -> Iterator[Record | BadRecord]:
        source = self.source
        dataset = self._dataset(split)
        columns = [name for name in source.fields.names if name in dataset.column_names]
        others = dict.fromkeys(name for name in dataset.column_names if name not in columns)
        for number, row in enumerate(dataset.select_columns(columns) if columns else dataset):
            where = f"{source.name} {dict(source.splits)[split]} row {number}"
            yield source.fields.record(row | others, where, f"{split}-{number}")

    def fingerprint(self, split: str) -> str:
        digest = hashlib.sha256()
        dataset = self._dataset(split)
        for file in dataset.cache_files:
            with Path(file["filename"]).open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        source = self.source
        place = [source.name, source.config, source.revision, source.folder, dict(source.splits)[split]]
        return f"hub {place} {digest.hexdigest()} {sorted(asdict(source.fields).items())}"

    @cached_property
    def _published(self) -> list[str]:
        return self._ask(get_dataset_split_names)

    def _dataset(self, split: str) -> Dataset:
        if split not in self._loaded:
            dataset = self._ask(load_dataset, split=dict(self.source.splits)[split])
            nested = [name for name in self.source.fields.names if name not in dataset.column_names and "." in name]
            self._loaded[split] = dataset.flatten() if nested else dataset
        return self._loaded[split]

    def _ask(self, function, **kwargs):
        """What a function of `datasets` says of the source.

        Raises:
            CorpusError: if it cannot say.
        """
        source = self.source
        place = _given({"revision": source.revision, "data_dir": source.folder})
        client = logging.getLogger("huggingface_hub")
        level = client.level
        client.setLevel(logging.ERROR)  # it warns of every retry; what comes of them is said once, below
        try:
            return function(source.name, source.config, **place, **kwargs)
        except Exception as error:  # whatever the network, the hub and a dozen file formats can raise
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            remedy = "check its name, config and splits and the network, or name a folder with a copy of it"
            raise CorpusError(f"{source.name}: the dataset cannot be had ({reason:.300}); {remedy}") from error
        finally:
            client.setLevel(level)


def _given(arguments: dict) -> dict:
    return {name: value for name, value in arguments.items() if value is not None}
