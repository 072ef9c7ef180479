"""Reader of JSON and JSON Lines: one document per record, its tree as nested lists."""

import json
from typing import Any

from datamodules.discourse.dependencies import Dependencies, from_dependencies
from datamodules.discourse.records import TreebankDocument, TreebankError, validate_document
from datamodules.discourse.trees import Tree, TreeError

DEPENDENCIES = ("heads", "relations", "nuclearity", "depths")


def read_lines(text: str, name: str) -> list[TreebankDocument]:
    """Return the documents of a JSON Lines file; blank lines are skipped.

    A record has `id`, `text` and `edus`; optionally `sentences`, `paragraphs`, `genre` and `license`; and the tree as
    `tree_nary` or `tree` (see `Tree.nested`), or as dependencies in `heads`, `relations`, `nuclearity`, `depths`. If it
    has several of these, they must agree.

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
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise TreebankError(f"{where}: not JSON ({error.msg}, column {error.colno}); is the file complete?") from error
    except RecursionError as error:
        raise TreebankError(f"{where}: lists are nested too deeply for JSON; give the tree as dependencies") from error


def _document(record: Any, where: str) -> TreebankDocument:
    if not isinstance(record, dict) or not isinstance(record.get("id"), str):
        raise TreebankError(f"{where}: not a document; it needs `id`, `text` and `edus`")
    location = f"{where}: {record['id']}"
    if not isinstance(record.get("text"), str):
        raise TreebankError(f"{location}: `text` is not a string; EDUs are offsets into it")
    try:
        tree = _tree(record)
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


def _tree(record: dict) -> Tree | None:
    """Return the tree of a record, n-ary if given; raise a TreeError if its forms differ."""
    trees = {name: Tree.from_nested(record[name]) for name in ("tree_nary", "tree") if record.get(name) is not None}
    if all(record.get(name) is not None for name in DEPENDENCIES):
        trees["heads"] = from_dependencies(_dependencies(record))
    if not trees:
        return None
    tree = next(iter(trees.values()))
    for name, alternative in trees.items():
        if alternative.binary() != tree.binary():
            raise TreeError(f"`{name}` differs from the tree in `{next(iter(trees))}`")
    return tree


def _dependencies(record: dict) -> Dependencies:
    columns = [record[name] for name in DEPENDENCIES]
    kinds = (int, str, str, int)
    for name, column, kind in zip(DEPENDENCIES, columns, kinds, strict=True):
        if not isinstance(column, list) or not all(type(value) is kind for value in column):
            raise TreeError(f"`{name}` is not a list of {kind.__name__}")
    return Dependencies(*(tuple(column) for column in columns))
