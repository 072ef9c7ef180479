"""Corpora of plain text: in memory, in parallel files with a document per line, and in folders of text or HTML."""

import hashlib
import json
import os
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import Any

from datamodules.corpora.corpus import Corpus
from datamodules.corpora.fields import Fields, Paragraphs, Sentences
from datamodules.documents import FIX_OR_SKIP, BadRecord, Record, UserError
from datamodules.text.hashing import text_digest
from datamodules.text.lines import readable_name

SUFFIXES = (".html", ".htm")


def is_html(path: Path) -> bool:
    """Return whether a file is an HTML page, by its suffix."""
    return path.suffix.lower() in SUFFIXES


def article_text(path: Path) -> str:
    """Return the text of the article in an HTML page, with blank lines between paragraphs, without comments and tables.

    Raises:
        UserError: if `trafilatura` is not installed, or the page has no article.
    """
    try:
        from trafilatura import extract
    except ImportError:
        problem = "reading HTML needs trafilatura, which is not installed"
        raise UserError(f"{path}: {problem}: pip install 'precis-suite[html]'") from None
    text = extract(path.read_bytes(), include_comments=False, include_tables=False)
    if not text:
        raise UserError(f"{path}: no article was found in this page; save its text in a .txt file")
    return "\n\n".join(line for line in text.split("\n") if line.strip())  # `extract` writes a line per paragraph


class Records(Corpus):
    """Records in memory, in one split, `test`: mappings with `id`, `document` (text or parts), perhaps `summary`."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self.rows = [dict(row) for row in rows]
        self.fields = Fields()

    def splits(self) -> list[str]:
        return ["test"]

    def records(self, split: str) -> Iterator[Record | BadRecord]:
        for number, row in enumerate(self.rows, start=1):
            yield self.fields.record(row, f"record {number}", str(number))

    def fingerprint(self, split: str) -> str:  # identifies content and arguments, for the cache key
        content = json.dumps([self.rows, self.fields.paragraphs], sort_keys=True, default=str)
        return f"{type(self).__name__.lower()} {text_digest(content)}"


class Texts(Records):
    """Texts to summarize as pairs of id and text, in one split, `test`, without references."""

    def __init__(self, texts: Iterable[tuple[str, str]], paragraphs: Paragraphs = "blank_line") -> None:
        super().__init__({"id": name, "document": text} for name, text in texts)
        self.fields = Fields(summary=None, paragraphs=paragraphs)

    def records(self, split: str) -> Iterator[Record | BadRecord]:
        for row in self.rows:
            yield self.fields.record(row, f"text {row['id']!r}", row["id"])


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
        self.source = source
        self.target = target
        self.separator = separator
        self.fields = Fields(  # a line has no paragraphs
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
            for number, lines in enumerate(zip_longest(*files), start=1):  # a line of each file
                if None in lines:  # one of the two files has ended
                    shorter, longer = paths if lines[0] is None else reversed(paths)
                    problem = f"ends before line {number} of {longer}"
                    raise UserError(f"{shorter}: {problem}; give files with a line for each document")
                if number == 1:
                    lines = [line.removeprefix(BOM_UTF8) for line in lines]
                yield self._record(lines, where=f"{paths[0]}:{number}", name=f"{stem}-{number}")

    def _record(self, lines: Sequence[bytes], where: str, name: str) -> Record | BadRecord:
        """Convert a line of the documents, and of the references if any, to a record; `name` is its id."""
        try:
            document, *references = [line.decode("utf-8").strip() for line in lines]
        except UnicodeDecodeError as error:
            return BadRecord(where, f"not UTF-8 (byte 0x{error.object[error.start]:02x})", FIX_OR_SKIP)
        reference = self._sentences(references[0]) if any(references) else None  # an empty line is no reference
        return self.fields.record({"document": self._sentences(document), "summary": reference}, where, name)

    def _sentences(self, line: str) -> str | list[list[str]]:  # a string, or a list of one text, a list of sentences
        return [line.split(self.separator)] if self.separator else line

    def fingerprint(self, split: str) -> str:  # identifies content and arguments, for the cache key
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


STORY, HIGHLIGHT = ".story", "@highlight"


class TextFolders(Corpus):
    """A folder for each split, with a file for each document in it.

    Documents are the `.txt`, `.story`, `.html` and `.htm` files of `FOLDER/documents`, or of `FOLDER` itself if it has
    no such folder. The references of `storm.txt` are `FOLDER/references/storm.txt`, or `storm.1.txt`, `storm.2.txt` and
    so on. A page in HTML is read by `trafilatura`. A `.story` file of CNN/DailyMail has its reference in it, a sentence
    after each `@highlight`. The id of a document is the name of its file without suffix.

    Args:
        train: folder.
        val: the same.
        test: the same.
        documents: name of the folder of documents.
        references: name of the folder of references.
        paragraphs: separator of paragraphs: `blank_line`, `line` or `none`.
        summary_sentences: `split` splits references into sentences; `line` takes each line as a sentence.

    Raises:
        UserError: on reading, if a folder is missing or has no document, or a reference belongs to no document.
    """

    def __init__(
        self,
        train: str | None = None,
        val: str | None = None,
        test: str | None = None,
        documents: str = "documents",
        references: str = "references",
        paragraphs: Paragraphs = "blank_line",
        summary_sentences: Sentences = "split",
    ) -> None:
        self.folders = {name: Path(path) for name, path in (("train", train), ("val", val), ("test", test)) if path}
        self.documents = documents
        self.references = references
        self.fields = Fields(paragraphs=paragraphs, summary_sentences=summary_sentences)

    def splits(self) -> list[str]:
        return list(self.folders)

    def title(self, split: str) -> str:
        return f"TextFolders {split} ({self.folders[split]})"

    def records(self, split: str) -> Iterator[Record | BadRecord]:
        for path, reference_paths in self._files(split).items():
            try:
                text = _text_of_file(path)
                references = list(map(_text_of_file, reference_paths))
                if path.suffix == STORY:
                    text, *highlights = text.split(HIGHLIGHT)  # the document, and a sentence after each @highlight
                    references = [highlights, *references] if highlights else references  # a list of sentences
                row = {"document": text, "summary": references}
            except UnicodeDecodeError as error:
                yield BadRecord(str(path), f"it, or a reference, is not UTF-8 (byte {error.start})", FIX_OR_SKIP)
                continue
            yield self.fields.record(row, str(path), readable_name(path.stem))

    def fingerprint(self, split: str) -> str:  # identifies content and arguments, for the cache key
        digest = hashlib.sha256()
        for path, references in self._files(split).items():
            for file in (path, *references):
                name = os.fsencode(f"{file.name}\n")  # `encode` would fail for a name that is not UTF-8
                digest.update(name + hashlib.sha256(file.read_bytes()).digest())
        return f"text folders {digest.hexdigest()} {self.fields.paragraphs} {self.fields.summary_sentences}"

    def _files(self, split: str) -> dict[Path, list[Path]]:
        """Return the path of each document of a split, with the paths of its references."""
        folder = self.folders[split]
        documents = folder / self.documents if (folder / self.documents).is_dir() else folder
        if not documents.is_dir():
            raise UserError(f"{folder}: no such folder; check the path of `{split}`")
        paths = sorted(path for path in documents.iterdir() if path.suffix.lower() in (".txt", STORY, *SUFFIXES))
        if not paths:
            problem = "no .txt or .html file, and no .story, in this folder"
            raise UserError(f"{documents}: {problem}; check the path of `{split}`")
        files: dict[Path, list[Path]] = {path: [] for path in paths}
        by_stem = {path.stem: path for path in paths}
        for reference in sorted((folder / self.references).glob("*.txt")):
            document = by_stem.get(reference.stem) or by_stem.get(reference.stem.rpartition(".")[0])  # storm, storm.1
            if document is None:
                raise UserError(f"{reference}: no document has this name; call it like its document")
            files[document].append(reference)
        return files


def _text_of_file(path: Path) -> str:  # of the article in an HTML page, or the content of a text file
    return article_text(path) if is_html(path) else path.read_text(encoding="utf-8-sig")
