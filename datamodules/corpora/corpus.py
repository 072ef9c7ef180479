"""What a corpus is, and how its records become documents on disk."""

import hashlib
import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from datasets import Dataset

from datamodules.building import appearing_folder
from datamodules.corpora.parallel import mapper, progress_bar
from datamodules.documents import MEND_OR_SKIP, OR_SKIP, BadRecord, CorpusError, Document, Record
from datamodules.text.sentences import Splitter, split_sentences

OnBadRecord = Literal["raise", "skip"]

# Raised whenever the same records would give other documents: it is part of the cache's key.
VERSION = 2

_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("parts", pa.list_(pa.list_(pa.string()))),
        ("references", pa.list_(pa.list_(pa.string()))),
    ]
)
_BATCH = 512  # records a batch: those of long books still stay below Arrow's 2 GB of text


class Corpus(ABC):
    """Where documents come from: at most three splits of records, read in a fixed order."""

    @abstractmethod
    def splits(self) -> list[str]:
        """The splits there are, of "train", "val" and "test"."""

    @abstractmethod
    def records(self, split: str) -> Iterator[Record | BadRecord]:
        """The records of a split, with a `BadRecord` for each that cannot be read.

        Raises:
            CorpusError: if the split as a whole cannot be read.
        """

    def title(self, split: str) -> str:
        """The split in a message."""
        return f"{type(self).__name__} {split}"

    @abstractmethod
    def fingerprint(self, split: str) -> str:
        """What identifies the content of `records(split)`, the arguments that shape it included.

        Raises:
            CorpusError: if the split cannot be read.
        """


def build_documents(
    corpus: Corpus,
    split: str,
    cache_dir: str | Path,
    splitter: Splitter = "auto",
    on_bad_record: OnBadRecord = "raise",
    require_references: bool = False,
    num_proc: int = 1,
) -> Dataset:
    """The documents of a split, memory-mapped: columns `id`, `parts` and `references`, a row a document.

    They are built once, into a folder of `cache_dir` named after the content and the arguments: `documents.arrow`
    and `manifest.json` (see `read_manifest`). The folder appears complete or not at all, also when several
    processes build it at once. Empty paragraphs are dropped.

    Args:
        splitter: how text becomes sentences, see `split_sentences`.
        on_bad_record: whether a record that cannot become a document ends the build, or is left out, counted and
            named in a warning and in the manifest.
        require_references: whether a record without a reference is bad, as in training.
        num_proc: processes that split sentences.

    Raises:
        CorpusError: if the corpus has no such split, a record is bad and not skipped, or no document is left.
    """
    if split not in corpus.splits():
        raise CorpusError(_no_split(corpus, split))
    fingerprint = corpus.fingerprint(split)

    def folder_of(with_references: bool) -> Path:
        key = _digest([VERSION, version("sentencex"), fingerprint, splitter, with_references])[:20]
        return Path(cache_dir) / f"{type(corpus).__name__.lower()}-{split}-{key}"

    folder = folder_of(require_references)
    if not (folder / "manifest.json").exists() and _all_have_references(folder_of(not require_references)):
        folder = folder_of(not require_references)  # the same documents, whether references are required or not
    if not (folder / "manifest.json").exists():
        to_document = partial(make_document, splitter=splitter, require_references=require_references)
        with appearing_folder(folder) as building:
            manifest = _write(corpus, split, building, to_document, on_bad_record, num_proc)
            manifest |= {"split": split, "splitter": splitter, "require_references": require_references}
            (building / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    dataset = Dataset.from_file(str(folder / "documents.arrow"))
    _report_skipped(corpus.title(split), folder, read_manifest(dataset)["skipped"], on_bad_record)
    return dataset


def as_document(row: dict[str, Any]) -> Document:
    """A row of `build_documents` as a `Document`."""
    return Document(row["id"], row["parts"], row["references"])


def read_manifest(dataset: Dataset) -> dict[str, Any]:
    """What was recorded when `build_documents` made a dataset.

    Returns:
        `split`, `splitter`, `require_references`, `documents` and `without_references` (their numbers), `digest` (of
        the documents, in order), `fingerprint` (of the corpus) and `skipped` (a list of `where` and `problem`).
    """
    path = Path(dataset.cache_files[0]["filename"]).with_name("manifest.json")
    return json.loads(path.read_text(encoding="utf-8"))


def make_document(
    record: Record | BadRecord, splitter: Splitter = "auto", require_references: bool = False
) -> Document | BadRecord:
    """The document of a record; the bad record, if it cannot become one."""
    if isinstance(record, BadRecord):
        return record
    if not record.id.strip():
        return BadRecord(record.where, "its id is empty", MEND_OR_SKIP)
    if (character := _lone_surrogate(record)) is not None:
        return BadRecord(record.where, f"half of a surrogate pair, U+{ord(character):X}, is no text", MEND_OR_SKIP)
    parts = [sentences for part in record.parts if (sentences := _sentences(part, splitter))]
    references = [sentences for text in record.references if (sentences := _sentences(text, splitter))]
    if not parts:
        return BadRecord(record.where, "the document is empty", MEND_OR_SKIP)
    if require_references and not references:
        problem = "its reference is empty" if record.references else "it has no reference"
        return BadRecord(record.where, problem, f"training and scoring need one: name its field, {OR_SKIP}")
    return Document(record.id, parts, references)


def _lone_surrogate(record: Record) -> str | None:
    """A character of the record that UTF-8 cannot hold, as `"\\ud800"` in JSON makes them."""
    texts = [text if isinstance(text, str) else "".join(text) for text in (*record.parts, *record.references)]
    try:
        "".join([record.id, *texts]).encode("utf-8")
    except UnicodeEncodeError as error:
        return error.object[error.start]
    return None


def _sentences(text: str | list[str], splitter: Splitter) -> list[str]:
    if isinstance(text, str):
        return split_sentences(text, splitter)
    return [sentence for piece in text if (sentence := " ".join(piece.split()))]


def _write(
    corpus: Corpus,
    split: str,
    folder: Path,
    to_document: Callable[[Record | BadRecord], Document | BadRecord],
    on_bad_record: OnBadRecord,
    num_proc: int,
) -> dict[str, Any]:
    """Streams the documents into `documents.arrow` and returns the manifest."""
    seen: dict[str, str] = {}
    skipped: list[dict[str, str]] = []
    without_references = 0
    digest = hashlib.sha256()
    converted = _converted(corpus.records(split), to_document, num_proc, f"{split} documents")
    with (
        pa.OSFile(str(folder / "documents.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, _SCHEMA) as writer,
        closing(converted),  # an error here ends the pool and the bar at once
    ):
        for pairs in converted:
            rows = []
            for record, document in pairs:
                if isinstance(document, Document) and document.id in seen:
                    problem = f"id {document.id!r} is that of {seen[document.id]} too"
                    document = BadRecord(record.where, problem, MEND_OR_SKIP)
                if isinstance(document, BadRecord):
                    if on_bad_record == "raise":
                        raise CorpusError(str(document))
                    skipped.append({"where": document.where, "problem": document.problem})
                    continue
                seen[document.id] = record.where
                without_references += not document.references
                rows.append({"id": document.id, "parts": document.parts, "references": document.references})
                digest.update(json.dumps(list(rows[-1].values())).encode())
            if rows:
                writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=_SCHEMA))
    if not seen:
        raise CorpusError(_no_document(corpus, split, skipped))
    return {
        "documents": len(seen),
        "without_references": without_references,
        "digest": digest.hexdigest(),
        "fingerprint": corpus.fingerprint(split),
        "skipped": skipped,
    }


def _converted(
    records: Iterable[Record | BadRecord],
    to_document: Callable[[Record | BadRecord], Document | BadRecord],
    num_proc: int,
    title: str,
) -> Iterator[list[tuple[Record | BadRecord, Document | BadRecord]]]:
    """Batches of records, each with what became of it, under a progress bar where somebody watches."""
    records = iter(records)
    batch = list(islice(records, _BATCH))  # a corpus may prepare itself here, under a bar of its own
    with mapper(num_proc) as mapped, progress_bar() as progress:
        task = progress.add_task(title, total=None)
        while batch:
            yield list(zip(batch, mapped(to_document, batch)))
            progress.advance(task, len(batch))
            batch = list(islice(records, _BATCH))


def _all_have_references(folder: Path) -> bool:
    """Return whether documents were built into a folder without skipping any, and each has a reference."""
    path = folder / "manifest.json"
    if not path.exists():
        return False
    manifest = json.loads(path.read_text(encoding="utf-8"))
    complete = manifest["require_references"] or manifest.get("without_references") == 0
    return complete and not manifest["skipped"]


def _report_skipped(name: str, folder: Path, skipped: list[dict[str, str]], on_bad_record: OnBadRecord) -> None:
    """Skipped records are an error where none may be, else one warning.

    Raises:
        CorpusError: if documents that were built with records left out are asked for with `on_bad_record="raise"`.
    """
    if not skipped:
        return
    first = [f"{bad['where']}: {bad['problem']}" for bad in skipped[:3]]
    if on_bad_record == "raise":
        raise CorpusError(f"{first[0]}; {MEND_OR_SKIP}")
    rest = len(skipped) - len(first)
    more = f"; and {rest} more, see {folder / 'manifest.json'}" if rest else ""
    warnings.warn(f"{name}: left out {len(skipped)} bad records: {'; '.join(first)}{more}", stacklevel=3)


def _no_split(corpus: Corpus, split: str) -> str:
    there = ", ".join(corpus.splits()) or "none"
    return f"{type(corpus).__name__} has no split {split!r} (there is: {there}); name a source for it or choose another"


def _no_document(corpus: Corpus, split: str, skipped: list[dict[str, str]]) -> str:
    first = f": {len(skipped)} bad records, the first {skipped[0]['where']}: {skipped[0]['problem']}" if skipped else ""
    return f"{corpus.title(split)}: no usable document{first}; check the files and the field names"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
