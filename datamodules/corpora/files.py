"""Corpora in local files."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from glob import glob
from pathlib import Path

from datamodules.corpora.corpus import Corpus
from datamodules.corpora.fields import DocumentList, Fields, Paragraphs, Sentences, SummaryList
from datamodules.corpora.readers import kind_of, read_rows
from datamodules.documents import BadRecord, CorpusError, Record

# None first: the command line takes the first type that fits, and "null" fits a text too
NameOrNone = None | str
NamesOrNone = None | list[str] | str


class Files(Corpus):
    """JSON Lines, Parquet or CSV files, plain or compressed (see `readers.read_rows`).

    Args:
        train: path, pattern with `*`, or a list of them.
        val: the same.
        test: the same.
        document: field that holds the text, or a list of texts; or several such fields, one behind the other.
        summary: field or fields that hold the reference, or a list of references; null where there is none.
        id: field that holds the id; by default `id`, or else the file's name and the line's number.
        paragraphs: what parts a document that is one string: blank lines, the ends of lines, or nothing.
        separator: what stands between source documents in one string, where something does; instead of `paragraphs`.
        document_list: what a list of strings is: the parts (paragraphs, or source documents), or the sentences of one
            part. A list of lists of strings is parts of sentences.
        document_sentences: whether text is to be split into sentences, or every line is one.
        summary_list: what a list of strings is: several references, or the sentences of one.
        summary_sentences: whether references are to be split into sentences, or every line is one.
        skip_parts: parts to leave out at the beginning of each document.
        split: share of the documents of `train` that are validation documents instead, where there is no file for
            `val`. Which ones depends on their text alone, so that equal documents are on one side.

    Raises:
        CorpusError: if an argument has none of its values; on reading, if a file is absent, of unknown kind or cut off.
    """

    def __init__(
        self,
        train: NamesOrNone = None,
        val: NamesOrNone = None,
        test: NamesOrNone = None,
        document: list[str] | str = "document",
        summary: NamesOrNone = "summary",
        id: NameOrNone = None,
        paragraphs: Paragraphs = "blank_line",
        separator: str | None = None,
        document_list: DocumentList = "parts",
        document_sentences: Sentences = "split",
        summary_list: SummaryList = "references",
        summary_sentences: Sentences = "split",
        skip_parts: int = 0,
        split: float | None = None,
    ) -> None:
        if split is not None and (not 0 < split < 1 or val or not train):
            raise CorpusError(
                f"corpus.split {split}: the share of `train` that becomes `val`, between 0 and 1; it needs `train` and "
                "no file for `val`"
            )
        self.val_share = split
        val = train if split else val
        given = {"train": train, "val": val, "test": test}
        self.paths = {split: [paths] if isinstance(paths, str) else paths for split, paths in given.items() if paths}
        self.fields = Fields(
            document=tuple(document) if isinstance(document, list) else document,
            summary=tuple(summary) if isinstance(summary, list) else summary,
            id=id,
            paragraphs=paragraphs,
            separator=separator,
            document_list=document_list,
            document_sentences=document_sentences,
            summary_list=summary_list,
            summary_sentences=summary_sentences,
            skip_parts=skip_parts,
        )

    def splits(self) -> list[str]:
        return list(self.paths)

    def title(self, split: str) -> str:
        return f"Files {split} ({', '.join(self.paths[split])})"

    def records(self, split: str) -> Iterator[Record | BadRecord]:
        for path in self._files(split):
            stem = path.name.split(".")[0]
            for number, row in read_rows(path, self.fields.names):
                record = row
                if not isinstance(row, BadRecord):
                    record = self.fields.record(row, f"{path}:{number}", f"{stem}-{number}")
                if self.val_share is None or split == self._side(record):
                    yield record

    def _side(self, record: Record | BadRecord) -> str:
        """Return the split of a record where one file holds training and validation documents."""
        if isinstance(record, BadRecord):
            return "train"
        digest = hashlib.sha256(json.dumps(record.parts).encode("utf-8", "surrogatepass")).digest()
        return "val" if int.from_bytes(digest[:8]) < self.val_share * 2**64 else "train"

    def fingerprint(self, split: str) -> str:
        digests = []
        for path in self._files(split):
            with path.open("rb") as stream:
                digests.append([path.name, hashlib.file_digest(stream, "sha256").hexdigest()])
        part = "" if self.val_share is None else f" {split} of {self.val_share}"
        return f"files {digests} {sorted(asdict(self.fields).items())}{part}"

    def _files(self, split: str) -> list[Path]:
        """The split's files, patterns resolved; checked before any is read.

        Raises:
            CorpusError: if one is absent or of unknown kind.
        """
        found = []
        for given in self.paths[split]:
            paths = [Path(path) for path in sorted(glob(given))] if "*" in given else [Path(given)]
            if not paths or not all(path.is_file() for path in paths):
                raise CorpusError(f"{given}: no such file; check the path of `{split}`")
            found += paths
        for path in found:
            kind_of(path)
        return found
