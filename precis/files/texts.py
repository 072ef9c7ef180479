"""Texts that are named on the command line."""

import os
import sys
from pathlib import Path

from datamodules.corpora.corpus import Corpus, make_document
from datamodules.corpora.readers import file_type
from datamodules.corpora.texts import article_text, is_html
from datamodules.documents import BadRecord, Document, UserError
from datamodules.text.lines import is_blank, readable_name


def is_records(path: Path) -> bool:
    """Return whether a file has records (JSON Lines, CSV, Parquet) by its suffix, not plain text."""
    try:
        file_type(path)
    except UserError:
        return False
    return True


def read_text(path: Path) -> str:
    """Return the text of a file, or of the article in an HTML page; a `UserError` if it is not UTF-8."""
    if is_html(path):
        return article_text(path)
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start}); convert it, e.g. with iconv") from None


def collect_texts(inputs: list[str], empty: bool = False) -> list[tuple[str, str]]:
    """Return (name or path, text) of standard input, files, the .txt and .html files of folders, or texts themselves.

    `inputs` are paths, or texts of several words or with a Chinese stop; an empty list, or `-`, is standard input. A
    `UserError` if one is missing or not text, or if it is blank, unless `empty` permits blank texts.
    """
    texts = _read_texts(inputs)
    for name, text in texts:
        if not empty and is_blank(text):
            is_folder = len(inputs) == 1 and os.path.isdir(inputs[0])  # its ids are names of files, without the folder
            where = os.path.join(inputs[0], name) if is_folder else name
            raise UserError(f"{where}: there is no text in it; leave it out, or give one with words")
    return texts


def documents_of(corpus: Corpus, language: str = "en") -> list[Document]:
    """Return the documents of the split `test` of a corpus, as a list; a `UserError` if a document is empty."""
    documents = []
    for record in corpus.records("test"):
        document = make_document(record, language=language)
        if isinstance(document, BadRecord):
            raise UserError(f"{document.where}: {document.problem}; leave it out, or give one with words")
        documents.append(document)
    return documents


def _read_texts(inputs: list[str]) -> list[tuple[str, str]]:
    """Return (id, text) of `inputs`, see `collect_texts`, blank ones too; an id is a path, or a single file's name."""
    if inputs in ([], ["-"]):
        try:
            return [("standard input", sys.stdin.buffer.read().decode("utf-8-sig").replace("\r\n", "\n"))]
        except UnicodeDecodeError as error:
            raise UserError(f"standard input: not UTF-8 text (byte {error.start}); convert it") from None
    single_input = len(inputs) == 1
    texts = []
    for number, name in enumerate(inputs, start=1):
        path = Path(name)
        is_text = len(name.split()) > 1 or any(stop in name for stop in "。！？｡")  # several words, or Chinese
        if is_text and not os.path.exists(name):
            texts.append(("text" if single_input else f"text {number}", name))
        elif path.is_dir():
            files = sorted(file for file in path.iterdir() if file.suffix.lower() == ".txt" or is_html(file))
            if not files:
                raise UserError(f"{path}: no .txt or .html file in this folder")
            texts += [(readable_name(file.name if single_input else str(file)), read_text(file)) for file in files]
        elif path.is_file():
            if is_records(path):
                remedy = "`precis summarize` takes one such file, by itself, and other commands a text"
                raise UserError(f"{path}: holds records, not a text; {remedy}")
            texts.append((readable_name(path.name if single_input else str(path)), read_text(path)))
        else:
            raise UserError(f"{path}: no such file or folder")
    return texts
