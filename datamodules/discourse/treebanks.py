"""Reader of treebanks: `TreebankDocument`s from a file or folder; JSON is read here, other formats in `formats`."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

from datamodules.discourse.formats import conllu, dis, rs3
from datamodules.discourse.records import TreebankDocument, TreebankError, in_language, validate_document
from datamodules.discourse.trees import Tree, TreeError
from datamodules.text.lines import load_json


def read_json_lines(text: str, name: str) -> list[TreebankDocument]:
    """Return the documents of a JSON Lines file; blank lines are skipped. `name` is that of the file, for errors.

    A record has `id`, `text` and `edus`; optionally `sentences`, `paragraphs`, `genre`, `license`, and a tree (see
    `Tree.nested`): the annotated one in `tree_nary`, or else `tree`, which may be a binary version of it.

    Raises:
        TreebankError: if a line is not JSON or not such a record, or the document is invalid.
    """
    documents = []
    for number, line in enumerate(text.split("\n"), 1):  # `splitlines` would also split at U+2028 in strings
        if line.strip():
            where = f"{name}:{number}"
            documents.append(_document(_parsed(line, where), where))
    return documents


def read_json(text: str, name: str) -> list[TreebankDocument]:
    """Return the documents of a JSON file: one record as in `read_json_lines`, or a list of records."""
    records = _parsed(text, name)
    if not isinstance(records, list):
        return [_document(records, name)]
    return [_document(record, f"{name}, record {number}") for number, record in enumerate(records)]


def _parsed(text: str, where: str) -> Any:
    try:
        return load_json(text)
    except ValueError as error:
        raise TreebankError(f"{where}: not JSON ({error}); is the file complete?") from error


def _document(record: Any, where: str) -> TreebankDocument:
    """Validate a record, see `read_json_lines`; `where` is the file and line, for messages."""
    if not isinstance(record, dict) or not isinstance(record.get("id"), str):
        raise TreebankError(f"{where}: not a document; it needs `id`, `text` and `edus`")
    location = f"{where}: {record['id']}"
    if not isinstance(record.get("text"), str):
        raise TreebankError(f"{location}: `text` is not a string; EDUs are offsets into it")
    nested = record.get("tree") if record.get("tree_nary") is None else record["tree_nary"]  # None without annotation
    try:
        tree = None if nested is None else Tree.from_nested(nested)
    except TreeError as error:
        raise TreebankError(f"{location}: not a tree: {error}; fix or leave out this record") from error
    offsets = {name: _offsets(record, name, location) for name in ("edus", "sentences", "paragraphs")}  # (start, end)
    genre, licence = (str(record.get(field) or "") for field in ("genre", "license"))  # "" if missing or null
    document = TreebankDocument(record["id"], record["text"], **offsets, tree=tree, genre=genre, licence=licence)
    return validate_document(document, where)


def _offsets(record: dict, name: str, location: str) -> list[tuple[int, int]]:
    """Return the offsets (start, end) in the field `name` of a record, an empty list if it is missing or null."""
    offsets = record.get(name) or []
    are_pairs = isinstance(offsets, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in offsets)
    if not are_pairs or not all(type(offset) is int for pair in offsets for offset in pair):
        raise TreebankError(f"{location}: `{name}` is not a list of [start, end]")
    return [(start, end) for start, end in offsets]


Reader = Callable[[str, str], list[TreebankDocument]]  # (content, name) of a file -> documents
READERS: dict[str, Reader] = {".jsonl": read_json_lines, ".json": read_json, ".rs3": rs3.read, ".rs4": rs3.read}
READERS |= {".dis": dis.read, ".conllu": conllu.read}


def read_treebank(path: str | Path, language: str = "en") -> list[TreebankDocument]:
    """Read the documents of a treebank file, or of all treebank files in a folder and its subfolders, sorted by path.

    Args:
        path: `.jsonl` or `.json` (see `read_json_lines`), `.rs3`, `.rs4`, `.dis` or `.conllu`; each also with `.gz`.
            Other files of a folder are ignored.
        language: code of the language, by whose rules documents without sentences are split (`records.in_language`).

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
    file_of: dict[str, Path] = {}  # by document id
    for file in files:
        for document in _read_file(file):
            if document.id in file_of:
                raise TreebankError(f"{file}: {document.id} is in {file_of[document.id]} already; ids must be unique")
            file_of[document.id] = file
            documents.append(in_language(document, language))
    if not documents:
        raise TreebankError(f"{path}: no document in it; is it complete?")
    return documents


def _reader(file: Path) -> Reader | None:
    return READERS.get(Path(file.name.removesuffix(".gz")).suffix)


def _read_file(file: Path) -> list[TreebankDocument]:
    reader = _reader(file)  # for the suffix of the file; None if it is unknown
    if reader is None:
        raise TreebankError(f"{file}: not a treebank; known are {', '.join(READERS)}, also with .gz")
    try:
        content = file.read_bytes()
        if file.name.endswith(".gz"):
            content = gzip.decompress(content)
        text = content.decode("utf-8-sig")  # Windows editors write a byte order mark
    except (OSError, EOFError) as error:  # `gzip` raises EOFError for a truncated file
        raise TreebankError(f"{file}: cannot be read ({error}); is it complete?") from error
    except UnicodeDecodeError as error:
        raise TreebankError(f"{file}: not UTF-8 at byte {error.start}; convert it") from error
    return reader(text, str(file))
