"""CoNLL-U with GUM's `Discourse=` in the column MISC (Zeldes 2017; UD_English-GUM from release 2.9 of 2021 on)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath

from datamodules.discourse.dependencies import Dependencies, from_dependencies
from datamodules.discourse.records import Offsets, TreebankDocument, TreebankError, validate_document
from datamodules.discourse.trees import Tree, TreeError

# relation, with _m behind it for a further nucleus : EDU -> its head : depth : signals; the root has no arrow
EDGE = re.compile(r"(?P<relation>[^:]+?)(?P<nucleus>_m)?:(?P<edu>\d+)(->(?P<head>\d+))?(:(?P<depth>\d+))?(:.*)?")
COLUMNS = 10
IDENTIFIER = re.compile(r"\d+([-.]\d+)?")  # a word, a range of words, an empty node


@dataclass
class _Lines:
    """The lines of a document and what its comments say."""

    id: str
    place: int
    lines: list[tuple[int, str]] = field(default_factory=list)
    genre: str = ""


@dataclass
class _Text:
    """A document as it is put together."""

    text: str = ""
    space: str = ""  # what stands before the next word
    edges: list[tuple[int, int, re.Match]] = field(default_factory=list)  # offset, line, Discourse=
    sentences: list[Offsets] = field(default_factory=list)
    paragraphs: list[int] = field(default_factory=list)  # where each begins
    sentence: int | None = None  # where the sentence that is being read begins
    new_paragraph: bool = False  # whether the next word begins one
    range_start: int = 0  # where a range like 3-4 begins, which word is its last, how far its words have come
    range_end: int = 0
    inner: int = 0


def read(text: str, name: str) -> list[TreebankDocument]:
    """The documents of a file, one after each `# newdoc id = ...`; without any, one named as the file.

    The text is that of the words, or of the ranges like `1-2` that words stand for, with a space behind each but where
    SpaceAfter=No; a paragraph (`# newpar`) begins on a line of its own. The tree is made of the dependencies and their
    depths (see `dependencies`). Behind a semicolon stand secondary edges, which are no part of the tree and are read
    past, as are signals.

    Raises:
        TreebankError: if a line has not 10 columns, `Discourse=` is missing, not understood, without a depth or not
            numbered one after the other, words are blanked out, or the dependencies are no tree; with the line.
    """
    return [_document(part, name) for part in _parts(text, name)]


def _parts(text: str, name: str) -> Iterator[_Lines]:
    part = _Lines(PurePath(name.removesuffix(".gz")).stem, 1)
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        key, _, value = line[1:].partition("=") if line.startswith("#") else ("", "", "")
        if key.strip() == "newdoc id":
            if any(not line.startswith("#") for _, line in part.lines):
                yield part
            part = _Lines(value.strip(), number)
        elif key.strip() == "meta::genre":
            part.genre = value.strip()
        elif line.strip():
            part.lines.append((number, line))
        else:
            part.lines.append((number, ""))
    if not any(line and not line.startswith("#") for _, line in part.lines):
        raise TreebankError(f"{name}:{part.place}: {part.id} has no words; is the file whole?")
    yield part


def _document(part: _Lines, name: str) -> TreebankDocument:
    put = _Text()
    _put_together(part, put, name)
    place = f"{name}:{part.place}: {part.id}"
    if not put.edges:
        raise TreebankError(f"{place}: no word has Discourse= in MISC; there is nothing to read here")
    if set(put.text) <= set("_ \n"):
        raise TreebankError(f"{place}: the words are blanked out; restore them with GUM's get_text.py")
    starts = [at for at, _, _ in put.edges]
    edus = _cut(put.text, starts)
    document = TreebankDocument(
        id=part.id,
        text=put.text,
        edus=edus,
        sentences=put.sentences,
        paragraphs=_cut(put.text, put.paragraphs),
        tree=_tree(put.edges, name, part.id),
        genre=part.genre,
    )
    return validate_document(document, f"{name}:{part.place}")


def _put_together(part: _Lines, put: _Text, name: str) -> None:
    """Reads lines into text, sentences, paragraphs and edges."""
    for number, line in [*part.lines, (0, "")]:
        if not line:
            if put.sentence is not None:
                put.sentences.append((put.sentence, len(put.text)))
            put.sentence, put.range_end = None, 0
        elif line.startswith("#"):
            if line[1:].partition("=")[0].strip() == "newpar":
                put.new_paragraph = True
                put.space = "\n" if put.text else ""
        else:
            columns = line.split("\t")
            if len(columns) != COLUMNS:
                raise TreebankError(f"{name}:{number}: {len(columns)} columns instead of {COLUMNS}; tabs part them")
            if not IDENTIFIER.fullmatch(columns[0]):
                raise TreebankError(f"{name}:{number}: {columns[0]!r} is not the number of a word; is this CoNLL-U?")
            if "." not in columns[0]:  # an empty node is no word of the text
                at = _put_word(columns[0], columns[1], "SpaceAfter=No" in columns[-1].split("|"), put)
                _note_edge(put, at, number, columns[-1], name)


def _put_word(identifier: str, form: str, joins: bool, put: _Text) -> int:
    """Adds a word or range of words to the text, unless it is within a range; where it begins."""
    if identifier.isdecimal() and int(identifier) <= put.range_end:
        at = min(put.range_start + put.inner, len(put.text) - 1)
        put.inner += len(form)
        return at
    put.text += put.space
    at = len(put.text)
    put.text += form
    put.space = "" if joins else " "
    if put.sentence is None:
        put.sentence = at
    if put.new_paragraph:
        put.paragraphs.append(at)
        put.new_paragraph = False
    if "-" in identifier:
        put.range_end, put.range_start, put.inner = int(identifier.split("-")[1]), at, 0
    return at


def _note_edge(put: _Text, at: int, number: int, misc: str, name: str) -> None:
    for entry in misc.split("|"):
        key, _, value = entry.partition("=")
        if key != "Discourse":
            continue
        edge = EDGE.fullmatch(value.split(";")[0])
        if edge is None:
            raise TreebankError(f"{name}:{number}: {entry!r} is not Discourse=relation:EDU->head:depth")
        if int(edge["edu"]) != len(put.edges) + 1:
            raise TreebankError(f"{name}:{number}: EDU {edge['edu']} where EDU {len(put.edges) + 1} should begin")
        if edge["depth"] is None:
            raise TreebankError(
                f"{name}:{number}: {entry!r} has no depth, without which there is no tree; take a newer release of GUM"
            )
        put.edges.append((at, number, edge))


def _tree(edges: list[tuple[int, int, re.Match]], name: str, identifier: str) -> Tree:
    heads, kinds = [], []
    for _, number, edge in edges:
        head = int(edge["head"]) - 1 if edge["head"] else -1
        if edge["head"] and not 0 <= head < len(edges):
            raise TreebankError(f"{name}:{number}: {identifier}: the head {edge['head']} does not exist")
        heads.append(head)
        kinds.append("root" if head < 0 else "m" if edge["nucleus"] else "s")
    relations = [edge["relation"] if head >= 0 else "ROOT" for head, (_, _, edge) in zip(heads, edges, strict=True)]
    depths = [int(edge["depth"]) for _, _, edge in edges]
    try:
        return from_dependencies(Dependencies(tuple(heads), tuple(relations), tuple(kinds), tuple(depths)))
    except TreeError as error:
        line = edges[0][1]
        raise TreebankError(f"{name}:{line}: {identifier}: no tree: {error} (EDUs counted from 0)") from error


def _cut(text: str, starts: list[int]) -> list[Offsets]:
    """Offsets of what begins at each of `starts` and goes on to the next, without space at its end."""
    ends = [*starts[1:], len(text)]
    return [(start, start + len(text[start:end].rstrip())) for start, end in zip(starts, ends)]
