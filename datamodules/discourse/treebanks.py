"""Reader of treebanks: `TreebankDocument`s from a file or folder."""

import gzip
from collections.abc import Callable
from pathlib import Path

from datamodules.discourse.formats import conllu, dis, nested_json, rs3
from datamodules.discourse.records import TreebankDocument, TreebankError, in_language
from datamodules.discourse.trees import Span, Tree

__all__ = ["Span", "Tree", "TreebankDocument", "TreebankError", "read_treebank"]

Reader = Callable[[str, str], list[TreebankDocument]]  # (content, name) of a file -> documents
READERS: dict[str, Reader] = {
    ".jsonl": nested_json.read_lines,
    ".json": nested_json.read_whole,
    ".rs3": rs3.read,
    ".rs4": rs3.read,
    ".dis": dis.read,
    ".conllu": conllu.read,
}


def read_treebank(path: str | Path, language: str = "en") -> list[TreebankDocument]:
    """Read the documents of a treebank file, or of all treebank files in a folder and its subfolders, sorted by name.

    Args:
        path: `.jsonl` or `.json` (the form of `formats.nested_json`), `.rs3`, `.rs4`, `.dis` or `.conllu`; each
            also with `.gz`. Other files of a folder are ignored.

    Raises:
        TreebankError: if there is nothing to read, the format of a file is unknown or violated, a document is
            invalid (see `records.validate_document`), or an id is not unique.
    """
    path = Path(path)
    if not path.exists():
        raise TreebankError(f"{path}: no such file or folder; check the path")
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file() and _reader(file))
    if not files:
        raise TreebankError(f"{path}: no treebank file in this folder; known are {', '.join(READERS)}")
    documents: list[TreebankDocument] = []
    file_of: dict[str, Path] = {}
    for file in files:
        for document in _read_file(file):
            if document.id in file_of:
                raise TreebankError(f"{file}: {document.id} is in {file_of[document.id]} already; ids must be unique")
            file_of[document.id] = file
            documents.append(in_language(document, language))
    return documents


def _reader(file: Path) -> Reader | None:
    return READERS.get(Path(file.name.removesuffix(".gz")).suffix)


def _read_file(file: Path) -> list[TreebankDocument]:
    reader = _reader(file)
    if reader is None:
        raise TreebankError(f"{file}: not a treebank; known are {', '.join(READERS)}, also with .gz")
    try:
        data = file.read_bytes()
        text = (gzip.decompress(data) if file.name.endswith(".gz") else data).decode("utf-8-sig")
    except (OSError, EOFError) as error:
        raise TreebankError(f"{file}: cannot be read ({error}); is it complete?") from error
    except UnicodeDecodeError as error:
        raise TreebankError(f"{file}: not UTF-8 at byte {error.start}; convert it") from error
    return reader(text, str(file))
