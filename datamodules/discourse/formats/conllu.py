"""Reader of CoNLL-U with `Discourse=` in the column MISC, as in GUM (Zeldes 2017; UD_English-GUM since release 2.9)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath

from datamodules.discourse.dependencies import Dependencies, from_dependencies
from datamodules.discourse.records import Offsets, TreebankDocument, TreebankError, validate_document
from datamodules.discourse.trees import Tree, TreeError

# relation (with suffix _m for a further nucleus) : EDU -> head : depth : signals; the root has no arrow
EDGE = re.compile(r"(?P<relation>[^:]+?)(?P<nucleus>_m)?:(?P<edu>\d+)(->(?P<head>\d+))?(:(?P<depth>\d+))?(:.*)?")
COLUMNS = 10
IDENTIFIER = re.compile(r"\d+([-.]\d+)?")  # a word, a range of words, an empty node


@dataclass
class _Lines:
    """Lines and metadata of a document."""

    id: str
    line: int
    lines: list[tuple[int, str]] = field(default_factory=list)
    genre: str = ""


@dataclass
class _Text:
    """State of the text while it is read."""

    text: str = ""
    space: str = ""  # separator before the next word
    edges: list[tuple[int, int, re.Match]] = field(default_factory=list)  # offset, line, match of Discourse=
    sentences: list[Offsets] = field(default_factory=list)
    paragraphs: list[int] = field(default_factory=list)  # first characters
    sentence: int | None = None  # first character of the current sentence
    new_paragraph: bool = False  # whether the next word begins a paragraph
    range_start: int = 0  # first character of a range of words such as 3-4
    range_end: int = 0  # number of its last word
    inner: int = 0  # number of its characters that have been read


def read(text: str, name: str) -> list[TreebankDocument]:
    """Return the documents of a file, each after `# newdoc id = ...`; without it, one document named like the file.

    The text is that of words, or of ranges such as `1-2`, followed by a space unless SpaceAfter=No; a paragraph
    (`# newpar`) begins on a new line. The tree is built from dependencies and depths, see `dependencies`. Secondary
    edges (after a semicolon) and signals are ignored.

    Raises:
        TreebankError: if a line does not have 10 columns, `Discourse=` is missing, invalid, without a depth or not
            numbered consecutively, words are blanked out, or the dependencies are not a tree; the message has the line.
    """
    return [_document(part, name) for part in _parts(text, name)]


def _parts(text: str, name: str) -> Iterator[_Lines]:
    part = _Lines(PurePath(name.removesuffix(".gz")).stem, 1)
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        key, _, value = line[1:].partition("=") if line.startswith("#") else ("", "", "")
        if key.strip() == "newdoc id":
            if any(line and not line.startswith("#") for _, line in part.lines):
                yield part
            part = _Lines(value.strip(), number)
        elif key.strip() == "meta::genre":
            part.genre = value.strip()
        elif line.strip():
            part.lines.append((number, line))
        else:
            part.lines.append((number, ""))
    if not any(line and not line.startswith("#") for _, line in part.lines):
        raise TreebankError(f"{name}:{part.line}: {part.id} has no words; is the file complete?")
    yield part


def _document(part: _Lines, name: str) -> TreebankDocument:
    """Read a document of a file; `name` is the name of the file, for messages."""
    reading = _Text()
    _read_lines(part, reading, name)
    location = f"{name}:{part.line}: {part.id}"
    if not reading.edges:
        raise TreebankError(f"{location}: no word has Discourse= in MISC, so there is no discourse to read")
    if set(reading.text) <= set("_ \n"):
        raise TreebankError(f"{location}: the words are blanked out; restore them with GUM's get_text.py")
    edus = _split_at(reading.text, [start for start, _, _ in reading.edges])
    document = TreebankDocument(
        id=part.id,
        text=reading.text,
        edus=edus,
        sentences=reading.sentences,
        paragraphs=_split_at(reading.text, reading.paragraphs),
        tree=_tree(reading.edges, name, part.id),
        genre=part.genre,
    )
    return validate_document(document, f"{name}:{part.line}")


def _read_lines(part: _Lines, reading: _Text, name: str) -> None:
    """Read lines to text, sentences, paragraphs and edges."""
    for number, line in [*part.lines, (0, "")]:
        if not line:
            if reading.sentence is not None:
                reading.sentences.append((reading.sentence, len(reading.text)))
            reading.sentence, reading.range_end = None, 0
        elif line.startswith("#"):
            if line[1:].partition("=")[0].strip() == "newpar":
                reading.new_paragraph = True
                reading.space = "\n" if reading.text else ""
        else:
            columns = line.split("\t")
            if len(columns) != COLUMNS:
                problem = f"{len(columns)} columns instead of {COLUMNS}"
                raise TreebankError(f"{name}:{number}: {problem}; separate them by tabs")
            if not IDENTIFIER.fullmatch(columns[0]):
                raise TreebankError(f"{name}:{number}: {columns[0]!r} is not the number of a word; is this CoNLL-U?")
            if "." not in columns[0]:  # not an empty node
                start = _add_word(columns[0], columns[1], "SpaceAfter=No" in columns[-1].split("|"), reading)
                _add_edge(reading, start, number, columns[-1], name)


def _add_word(identifier: str, form: str, no_space_after: bool, reading: _Text) -> int:
    """Append a word or range of words to the text, unless it is inside a range; return its first character."""
    if identifier.isdecimal() and int(identifier) <= reading.range_end:
        start = min(reading.range_start + reading.inner, len(reading.text) - 1)
        reading.inner += len(form)
        return start
    reading.text += reading.space
    start = len(reading.text)
    reading.text += form
    reading.space = "" if no_space_after else " "
    if reading.sentence is None:
        reading.sentence = start
    if reading.new_paragraph:
        reading.paragraphs.append(start)
        reading.new_paragraph = False
    if "-" in identifier:
        reading.range_end, reading.range_start, reading.inner = int(identifier.split("-")[1]), start, 0
    return start


def _add_edge(reading: _Text, start: int, number: int, misc: str, name: str) -> None:
    for entry in misc.split("|"):
        key, _, value = entry.partition("=")
        if key != "Discourse":
            continue
        edge = EDGE.fullmatch(value.split(";")[0])
        if edge is None:
            raise TreebankError(f"{name}:{number}: {entry!r} is not Discourse=relation:EDU->head:depth")
        if int(edge["edu"]) != len(reading.edges) + 1:
            raise TreebankError(f"{name}:{number}: EDU {edge['edu']} where EDU {len(reading.edges) + 1} should begin")
        if edge["depth"] is None:
            raise TreebankError(
                f"{name}:{number}: {entry!r} has no depth, which the tree needs; use a newer release of GUM"
            )
        reading.edges.append((start, number, edge))


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
        raise TreebankError(f"{name}:{line}: {identifier}: not a tree: {error} (EDUs counted from 0)") from error


def _split_at(text: str, starts: list[int]) -> list[Offsets]:
    """Return the offsets of the pieces of a text that begin at `starts`, without white space at their ends."""
    ends = [*starts[1:], len(text)]
    return [(start, start + len(text[start:end].rstrip())) for start, end in zip(starts, ends)]
