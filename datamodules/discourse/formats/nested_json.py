"""Reader of JSON and JSON Lines: one document per record, its tree as nested lists."""

from typing import Any

from datamodules.discourse.records import TreebankDocument, TreebankError, validate_document
from datamodules.discourse.trees import Tree, TreeError
from datamodules.text.lines import load_json


def read_lines(text: str, name: str) -> list[TreebankDocument]:
    """Return the documents of a JSON Lines file; blank lines are skipped.

    A record has `id`, `text` and `edus`; optionally `sentences`, `paragraphs`, `genre` and `license`; and the tree in
    `tree_nary`, or else in `tree` (see `Tree.nested`).

    Raises:
        TreebankError: if a line is not JSON or not such a record, or the document is invalid.
    """
    lines = ((f"{name}:{number}", line) for number, line in enumerate(text.split("\n"), 1))
    return [_document(_parsed(line, where), where) for where, line in lines if line.strip()]


def read_whole(text: str, name: str) -> list[TreebankDocument]:
    """Return the documents of a JSON file: one record as in `read_lines`, or a list of records."""
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
    if not isinstance(record, dict) or not isinstance(record.get("id"), str):
        raise TreebankError(f"{where}: not a document; it needs `id`, `text` and `edus`")
    location = f"{where}: {record['id']}"
    if not isinstance(record.get("text"), str):
        raise TreebankError(f"{location}: `text` is not a string; EDUs are offsets into it")
    nested = record.get("tree") if record.get("tree_nary") is None else record["tree_nary"]
    try:
        tree = None if nested is None else Tree.from_nested(nested)
    except TreeError as error:
        raise TreebankError(f"{location}: not a tree: {error}; fix or leave out this record") from error
    document = TreebankDocument(
        id=record["id"],
        text=record["text"],
        edus=_offsets(record, "edus", location),
        sentences=_offsets(record, "sentences", location),
        paragraphs=_offsets(record, "paragraphs", location),
        tree=tree,
        genre=str(record.get("genre") or ""),
        licence=str(record.get("license") or ""),
    )
    return validate_document(document, where)


def _offsets(record: dict, name: str, location: str) -> list[tuple[int, int]]:
    offsets = record.get(name) or []
    pairs = isinstance(offsets, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in offsets)
    if not pairs or not all(type(value) is int for pair in offsets for value in pair):
        raise TreebankError(f"{location}: `{name}` is not a list of [start, end]")
    return [(start, end) for start, end in offsets]
