"""Folders of text files or HTML pages, with references in a folder beside them."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from datamodules.corpora.corpus import Corpus
from datamodules.corpora.fields import Fields, Paragraphs, Sentences
from datamodules.documents import FIX_OR_SKIP, BadRecord, Record, UserError
from datamodules.text.html_text import SUFFIXES, article_text, is_html
from datamodules.text.lines import readable_name

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
        self.documents, self.references = documents, references
        self.fields = Fields(paragraphs=paragraphs, summary_sentences=summary_sentences)

    def splits(self) -> list[str]:
        return list(self.folders)

    def title(self, split: str) -> str:
        return f"TextFolders {split} ({self.folders[split]})"

    def records(self, split: str) -> Iterator[Record | BadRecord]:
        for path, references in self._files(split).items():
            try:
                text, *highlights = _read(path).split(HIGHLIGHT) if path.suffix == STORY else [_read(path)]
                row = {"document": text, "summary": [*([highlights] if highlights else []), *map(_read, references)]}
            except UnicodeDecodeError as error:
                yield BadRecord(str(path), f"it, or a reference, is not UTF-8 (byte {error.start})", FIX_OR_SKIP)
                continue
            yield self.fields.record(row, str(path), readable_name(path.stem))

    def fingerprint(self, split: str) -> str:
        digest = hashlib.sha256()
        for path, references in self._files(split).items():
            for file in (path, *references):
                digest.update(os.fsencode(f"{file.name}\n") + hashlib.sha256(file.read_bytes()).digest())
        return f"text folders {digest.hexdigest()} {self.fields.paragraphs} {self.fields.summary_sentences}"

    def _files(self, split: str) -> dict[Path, list[Path]]:
        """Return the documents of a split, each with its references."""
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
            owner = by_stem.get(reference.stem) or by_stem.get(reference.stem.rpartition(".")[0])
            if owner is None:
                raise UserError(f"{reference}: no document has this name; call it like its document")
            files[owner].append(reference)
        return files


def _read(path: Path) -> str:
    return article_text(path) if is_html(path) else path.read_text(encoding="utf-8-sig")
