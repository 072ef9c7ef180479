"""Base class of corpora, and the document cache on disk."""

import hashlib
import json
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from datamodules.atomic_write import appearing_folder
from datamodules.corpora.parallel import mapper, progress_bar
from datamodules.documents import FIX_OR_SKIP, OR_SKIP, BadRecord, Document, Record, UserError
from datamodules.text.hashing import text_digest
from datamodules.text.language import Language, language_of
from datamodules.text.lines import counted, is_blank, lone_surrogate

if TYPE_CHECKING:
    from datasets import Dataset  # imported when documents are read: commands that read none answer faster

OnBadRecord = Literal["raise", "skip"]

# Part of the cache key: increase it when the same records give other documents.
VERSION = 6

_BATCH = 512  # records per table chunk; even whole books stay below Arrow's limit of 2 GB of text


class Corpus(ABC):
    """Base class of corpora: up to three splits of records in a fixed order."""

    @abstractmethod
    def splits(self) -> list[str]:
        """Return the available splits, out of "train", "val" and "test"."""

    @abstractmethod
    def records(self, split: str) -> Iterator[Record | BadRecord]:
        """Yield the records of a split, with a `BadRecord` in place of each record that cannot be read.

        Raises:
            UserError: if the split as a whole cannot be read.
        """

    def title(self, split: str) -> str:
        """Return the name of a split for messages."""
        return f"{type(self).__name__} {split}"

    @abstractmethod
    def fingerprint(self, split: str) -> str:
        """Return a string that changes if the content of `records(split)` or an argument that affects it changes.

        Raises:
            UserError: if the split cannot be read.
        """


def build_documents(
    corpus: Corpus,
    split: str,
    cache_dir: str | Path,
    on_bad_record: OnBadRecord = "raise",
    require_references: bool = False,
    num_proc: int = 1,
    language: str = "en",
) -> "Dataset":
    """Return the documents of a split as a memory-mapped table with the fields of `Document` as columns.

    The table is built once, in a folder of `cache_dir` whose name has a digest of content and arguments. The folder has
    the files `documents.arrow` and `manifest.json` (see `read_manifest`); it appears atomically, even if several
    processes build it at once. Empty paragraphs are dropped.

    Args:
        on_bad_record: `raise` stops at a record that cannot become a document; `skip` leaves it out, and lists it in a
            warning and in the manifest.
        require_references: whether a record without a reference is bad, since training needs one.
        num_proc, language: number of processes that split sentences, and code of the language whose rules they use.

    Raises:
        UserError: if the corpus has no such split, a record is bad and not skipped, or no document is left.
    """
    from datasets import Dataset

    if split not in corpus.splits():
        raise UserError(f"{no_split(corpus, split)}; name a source for it or choose another")
    fingerprint = corpus.fingerprint(split)

    def folder_of(with_references: bool) -> Path:
        # "auto" was the value of an option that no longer exists; it stays, so that existing folders are still found
        content = [VERSION, version("sentencex"), fingerprint, "auto", with_references]
        content += language_of(language).setting.values()  # the code; nothing for English, as in existing keys
        key = text_digest(json.dumps(content))[:20]  # 80 bits: a collision is practically impossible
        return Path(cache_dir) / f"{type(corpus).__name__.lower()}-{split}-{key}"

    folder = folder_of(require_references)
    if not (folder / "manifest.json").exists() and _all_have_references(folder_of(not require_references)):
        folder = folder_of(not require_references)  # same documents: each has a reference, none was skipped
    if not (folder / "manifest.json").exists():
        to_document = partial(make_document, require_references=require_references, language=language)
        with appearing_folder(folder) as building:  # renamed to `folder` when complete
            manifest = _write_documents(corpus, split, building, to_document, on_bad_record, num_proc)
            (building / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    dataset = Dataset.from_file(str(folder / "documents.arrow"))
    manifest = read_manifest(dataset)
    _report_skipped(corpus.title(split), folder, manifest["skipped"], on_bad_record)
    if manifest["cleaned"]:
        from pytorch_lightning.utilities import rank_zero_info  # here, because it imports torch, which is slow

        removed_marks = ", ".join(f"{number:,} {rule}" for rule, number in manifest["cleaned"].items())
        rank_zero_info(f"{split}: cleaned away: {removed_marks}")
    return dataset


def as_document(row: dict[str, Any]) -> Document:
    """Convert a row of `build_documents` to a `Document`."""
    return Document(row["id"], row["parts"], row["references"])


class TableDocuments(Sequence[Document]):
    """Sequence of the documents of a table, converted on access."""

    def __init__(self, table: "Dataset") -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> Document:
        return as_document(self.table[index])  # an index past the end raises `IndexError`, which ends an iteration


def read_manifest(dataset: "Dataset") -> dict[str, Any]:
    """Read the manifest of a table that `build_documents` returned.

    It has `documents` and `without_references` (numbers of documents), `digest` (SHA-256 of the documents in order),
    `cleaned` (how often each rule of `fields.RULES` removed a mark, such as "(CNN)") and `skipped` (a list of bad
    records, each with `where` and `problem`).
    """
    path = Path(dataset.cache_files[0]["filename"]).with_name("manifest.json")  # beside the file of the table
    return json.loads(path.read_text(encoding="utf-8"))


def make_document(
    record: Record | BadRecord, require_references: bool = False, language: str = "en"
) -> Document | BadRecord:
    """Return a document with the sentences of a record; `BadRecord` if id, text or a required reference is missing."""
    if isinstance(record, BadRecord):
        return record
    if is_blank(record.id):
        return BadRecord(record.where, "its id is empty", FIX_OR_SKIP)
    texts = [text if isinstance(text, str) else "".join(text) for text in (*record.parts, *record.references)]
    if code := lone_surrogate("".join([record.id, *texts])):  # JSON may have one, but UTF-8 and Arrow cannot encode it
        return BadRecord(record.where, f"half of a surrogate pair, {code}, is not text", FIX_OR_SKIP)
    splitter = language_of(language)  # splits parts and references that are not yet lists of sentences
    parts = [sentences for part in record.parts if (sentences := _sentences(part, splitter))]
    references = [sentences for text in record.references if (sentences := _sentences(text, splitter))]
    if not parts:
        return BadRecord(record.where, "the document is empty", FIX_OR_SKIP)
    if require_references and not references:
        problem = "its reference is empty" if record.references else "it has no reference"
        return BadRecord(record.where, problem, f"training and scoring need one: name its field, {OR_SKIP}")
    return Document(record.id, parts, references)


def _sentences(text: str | list[str], language: Language) -> list[str]:
    """Return the sentences of a text, a string or a list of sentences, each on one line; blank ones are left out."""
    if isinstance(text, str):
        sentences = language.split_sentences(text)
    else:
        sentences = [language.normalize(" ".join(line.split())) for line in text]  # NFC, as in `split_sentences`
    return [sentence for sentence in sentences if not is_blank(sentence)]


def _write_documents(
    corpus: Corpus,
    split: str,
    folder: Path,
    to_document: Callable[[Record | BadRecord], Document | BadRecord],
    on_bad_record: OnBadRecord,
    num_proc: int,
) -> dict[str, Any]:
    """Write the documents of a split to `documents.arrow` in `folder`, and return the manifest, see `read_manifest`."""
    import pyarrow as pa  # not at the top: summarizing a text makes documents without a table, and should not wait

    texts = pa.list_(pa.list_(pa.string()))  # a list of texts, each a list of sentences
    schema = pa.schema([("id", pa.string()), ("parts", texts), ("references", texts)])
    place_of_id: dict[str, str] = {}  # id -> file and line of its record
    skipped: list[dict[str, str]] = []
    without_references = 0
    cleaned: Counter[str] = Counter()  # rule of `fields.RULES` -> how often it was applied
    digest = hashlib.sha256()
    batches = _convert_in_batches(corpus.records(split), to_document, num_proc, f"{split} documents")
    with (
        pa.OSFile(str(folder / "documents.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, schema) as writer,
        closing(batches),  # stops the process pool and the progress bar at once on errors
    ):
        for batch in batches:
            rows = []
            for record, document in batch:
                if isinstance(document, Document) and document.id in place_of_id:
                    problem = f"id {document.id!r} is also the id of {place_of_id[document.id]}"
                    document = BadRecord(record.where, problem, FIX_OR_SKIP)
                if isinstance(document, BadRecord):
                    if on_bad_record == "raise":
                        raise UserError(str(document))
                    skipped.append({"where": document.where, "problem": document.problem})
                    continue
                place_of_id[document.id] = record.where
                without_references += not document.references
                cleaned.update(record.cleaned)
                rows.append({"id": document.id, "parts": document.parts, "references": document.references})
                digest.update(json.dumps([document.id, document.parts, document.references]).encode())
            if rows:  # all records of a batch may be bad
                writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema))
    if not place_of_id:
        number = counted(len(skipped), "bad record")
        details = f": {number}, the first {skipped[0]['where']}: {skipped[0]['problem']}" if skipped else ""
        raise UserError(f"{corpus.title(split)}: no usable document{details}; check the files and the field names")
    return {
        "documents": len(place_of_id),
        "without_references": without_references,
        "digest": digest.hexdigest(),
        "cleaned": cleaned,
        "skipped": skipped,
    }


def _convert_in_batches(
    records: Iterable[Record | BadRecord],
    to_document: Callable[[Record | BadRecord], Document | BadRecord],
    num_proc: int,
    title: str,
) -> Iterator[list[tuple[Record | BadRecord, Document | BadRecord]]]:
    """Yield batches of pairs: a record, and its result of `to_document`; `title` is the text of the progress bar."""
    records = iter(records)
    batch = list(islice(records, _BATCH))  # before this progress bar, as reading the first record may show another one
    with mapper(num_proc) as map_in_processes, progress_bar() as progress:
        task = progress.add_task(title, total=None)
        while batch:
            yield list(zip(batch, map_in_processes(to_document, batch)))
            progress.advance(task, len(batch))
            batch = list(islice(records, _BATCH))


def _all_have_references(folder: Path) -> bool:
    """Return whether a folder of `build_documents` exists, each document has a reference, and no record was skipped."""
    path = folder / "manifest.json"
    if not path.exists():
        return False
    manifest = json.loads(path.read_text(encoding="utf-8"))
    return manifest["without_references"] == 0 and not manifest["skipped"]


def _report_skipped(name: str, folder: Path, skipped: list[dict[str, str]], on_bad_record: OnBadRecord) -> None:
    """Warn of skipped records; with `raise`, raise an error: an earlier run with `skip` may have cached the table."""
    if not skipped:
        return
    examples = [f"{bad['where']}: {bad['problem']}" for bad in skipped[:3]]
    if on_bad_record == "raise":
        raise UserError(f"{examples[0]}; {FIX_OR_SKIP}")
    num_more = len(skipped) - len(examples)
    more = f"; and {num_more} more, see {folder / 'manifest.json'}" if num_more else ""
    warnings.warn(f"{name}: left out {counted(len(skipped), 'bad record')}: {'; '.join(examples)}{more}", stacklevel=3)


def no_split(corpus: Corpus, split: str) -> str:
    """Return the message that a corpus has no such split, without a remedy."""
    return f"{type(corpus).__name__} has no split {split!r} (it has: {', '.join(corpus.splits()) or 'none'})"
