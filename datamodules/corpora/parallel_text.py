"""Parallel text files: line n of one holds a document, line n of the other its reference."""

import hashlib
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path

from datamodules.corpora.corpus import Corpus
from datamodules.corpora.fields import Fields, Sentences
from datamodules.documents import FIX_OR_SKIP, BadRecord, Record, UserError
from datamodules.text.lines import readable_name


class ParallelText(Corpus):
    """Pairs of text files with a document and a reference per line, as fairseq and BART read them.

    Args:
        train: path without suffix: `cnndm/train` stands for `cnndm/train.source` and `cnndm/train.target`.
        val: the same.
        test: the same.
        source: suffix of the documents.
        target: suffix of the references; null if there are none.
        separator: string between the sentences of a line, such as `<q>`, in place of sentence splitting.
        document_sentences: `split` splits a line into sentences; `line` takes it as one.
        summary_sentences: the same, for references.

    Raises:
        UserError: on reading, if a file is missing, or the files of a split differ in their number of lines.
    """

    def __init__(
        self,
        train: str | None = None,
        val: str | None = None,
        test: str | None = None,
        source: str = ".source",
        target: str | None = ".target",
        separator: str | None = None,
        document_sentences: Sentences = "split",
        summary_sentences: Sentences = "split",
    ) -> None:
        self.prefixes = {name: path for name, path in (("train", train), ("val", val), ("test", test)) if path}
        self.source, self.target, self.separator = source, target, separator
        self.fields = Fields(
            paragraphs="none", document_sentences=document_sentences, summary_sentences=summary_sentences
        )

    def splits(self) -> list[str]:
        return list(self.prefixes)

    def title(self, split: str) -> str:
        return f"ParallelText {split} ({self.prefixes[split]})"

    def records(self, split: str) -> Iterator[Record | BadRecord]:
        paths = self._files(split)
        stem = readable_name(Path(self.prefixes[split]).name)
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("rb")) for path in paths]
            for number, lines in enumerate(zip_longest(*files), start=1):
                if None in lines:
                    shorter, longer = paths if lines[0] is None else reversed(paths)
                    problem = f"ends before line {number} of {longer}"
                    raise UserError(f"{shorter}: {problem}; give files with a line for each document")
                if number == 1:
                    lines = [line.removeprefix(BOM_UTF8) for line in lines]
                yield self._record(lines, f"{paths[0]}:{number}", f"{stem}-{number}")

    def _record(self, lines: Sequence[bytes], where: str, name: str) -> Record | BadRecord:
        """Convert a line of each file to a record."""
        try:
            document, *references = [line.decode("utf-8").strip() for line in lines]
        except UnicodeDecodeError as error:
            return BadRecord(where, f"not UTF-8 (byte 0x{error.object[error.start]:02x})", FIX_OR_SKIP)
        reference = self._sentences(references[0]) if any(references) else None
        row = {"document": self._sentences(document), "summary": reference}
        return self.fields.record(row, where, name)

    def _sentences(self, line: str) -> str | list[list[str]]:
        return [line.split(self.separator)] if self.separator else line

    def fingerprint(self, split: str) -> str:
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in self._files(split)]
        options = [self.separator, self.fields.document_sentences, self.fields.summary_sentences]
        return f"parallel text {Path(self.prefixes[split]).name} {digests} {options}"

    def _files(self, split: str) -> list[Path]:
        """Return the files of a split: documents, and references if there are any."""
        suffixes = [self.source] if self.target is None else [self.source, self.target]
        paths = [Path(f"{self.prefixes[split]}{suffix}") for suffix in suffixes]
        for path in paths:
            if not path.is_file():
                raise UserError(f"{path}: no such file; check the path of `{split}`, `source` and `target`")
        return paths
