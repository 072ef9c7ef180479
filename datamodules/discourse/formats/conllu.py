"""Reader of CoNLL-U with `Discourse=` in the column MISC, as in GUM (Zeldes 2017; UD_English-GUM since release 2.9)."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePath

from datamodules.discourse.records import Offsets, TreebankDocument, TreebankError, validate_document
from datamodules.discourse.trees import SPAN, Node, Tree, TreeError

# relation (with suffix _m for a further nucleus) : EDU -> head : depth : signals; the root has no arrow
EDGE = re.compile(r"(?P<relation>[^:]+?)(?P<nucleus>_m)?:(?P<edu>\d+)(->(?P<head>\d+))?(:(?P<depth>\d+))?(:.*)?")
COLUMNS = 10
IDENTIFIER = re.compile(r"\d+([-.]\d+)?")  # a word, a range of words, an empty node


@dataclass
class _Reading:
    """State of the reader within a document; `text` is the text of all words so far."""

    where: str  # file and first line
    id: str
    genre: str = ""
    text: str = ""
    space: str = ""  # separator before the next word
    edges: list[tuple[int, str, re.Match]] = field(default_factory=list)  # first character, line, match of Discourse=
    sentences: list[Offsets] = field(default_factory=list)
    paragraphs: list[int] = field(default_factory=list)  # first characters
    sentence_start: int | None = None  # first character of the current sentence; None before its first word
    new_paragraph: bool = False  # whether the next word begins a paragraph
    range_position: int = 0  # first character of the next word of a range such as 3-4 (`don't` of `do` and `n't`)
    last_in_range: int = 0  # number of the last word of this range; 0 without a range in the sentence

    def end_sentence(self) -> None:
        if self.sentence_start is not None:
            self.sentences.append((self.sentence_start, len(self.text)))
        self.sentence_start = None
        self.last_in_range = 0  # a range of words, such as 3-4, ends with its sentence


def read(text: str, name: str) -> list[TreebankDocument]:
    """Return the documents of a file, each after `# newdoc id = ...`; without it, one document named like the file.

    The text is that of words, or of ranges such as `1-2`, followed by a space unless SpaceAfter=No; a paragraph
    (`# newpar`) begins on a new line. The tree is built from dependencies and depths (the order of attachment to a
    head); secondary edges (after a semicolon) and signals (the words that show a relation) are ignored.

    Raises:
        TreebankError: if a line does not have 10 columns, `Discourse=` is missing, invalid, without a depth or not
            numbered consecutively, all words are blanked out (`_`), or there is no tree; the message has the line.
    """
    documents = []
    reading = _Reading(f"{name}:1", PurePath(name.removesuffix(".gz")).stem)  # the text and edges of a document so far
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")  # line ends of Windows
        where = f"{name}:{number}"
        if not line.strip():  # a blank line ends a sentence
            reading.end_sentence()
        elif not line.startswith("#"):
            _read_word(line, where, reading)
        else:
            key, _, value = (part.strip() for part in line[1:].partition("="))
            if key == "newdoc id":
                if reading.text:  # there is none before the first document
                    documents.append(_document(reading))
                reading = _Reading(where, value)
            elif key == "meta::genre":
                reading.genre = value
            elif key == "newpar":
                reading.new_paragraph = True
                reading.space = "\n" if reading.text else ""
    if not reading.text:
        raise TreebankError(f"{reading.where}: {reading.id} has no words; is the file complete?")
    return [*documents, _document(reading)]


def _document(reading: _Reading) -> TreebankDocument:
    """Return the validated document of all lines read; each word with Discourse= begins an EDU."""
    reading.end_sentence()
    location = f"{reading.where}: {reading.id}"
    if not reading.edges:
        raise TreebankError(f"{location}: no word has Discourse= in MISC, so there is no discourse to read")
    if set(reading.text) <= set("_ \n"):  # GUM is distributed with _ for the letters of copyrighted texts
        raise TreebankError(f"{location}: the words are blanked out; restore them with GUM's get_text.py")
    document = TreebankDocument(
        id=reading.id,
        text=reading.text,
        edus=_split_at(reading.text, [start for start, _, _ in reading.edges]),  # at their first characters
        sentences=reading.sentences,
        paragraphs=_split_at(reading.text, reading.paragraphs),
        tree=_tree(reading),
        genre=reading.genre,
    )
    return validate_document(document, reading.where)


def _read_word(line: str, where: str, reading: _Reading) -> None:
    """Add the line of a word or a range of words to `reading`; the line of an empty node is ignored."""
    columns = line.split("\t")
    if len(columns) != COLUMNS:
        raise TreebankError(f"{where}: {len(columns)} columns instead of {COLUMNS}; separate them by tabs")
    identifier, form = columns[0], columns[1]
    misc = columns[-1].split("|")
    if not IDENTIFIER.fullmatch(identifier):
        raise TreebankError(f"{where}: {identifier!r} is not the number of a word; is this CoNLL-U?")
    if "." in identifier:  # an empty node, such as 8.1, is not in the text
        return
    start = _add_word(identifier, form, "" if "SpaceAfter=No" in misc else " ", reading)
    for entry in misc:
        if entry.startswith("Discourse="):  # this word begins an EDU
            edu_number = len(reading.edges) + 1
            reading.edges.append((start, where, _edge(entry, where, edu_number)))  # first character, line, match


def _add_word(identifier: str, form: str, space_after: str, reading: _Reading) -> int:
    """Append a word or a range like `1-2` to `reading`, not the words inside a range; return its start in the text."""
    if identifier.isdecimal() and int(identifier) <= reading.last_in_range:  # a word inside a range
        start = min(reading.range_position, len(reading.text) - 1)  # its words may exceed the text
        reading.range_position += len(form)
        return start
    start = len(reading.text) + len(reading.space)
    reading.text += reading.space + form
    reading.space = space_after
    if reading.sentence_start is None:
        reading.sentence_start = start
    if reading.new_paragraph:
        reading.paragraphs.append(start)
        reading.new_paragraph = False
    if "-" in identifier:
        reading.range_position, reading.last_in_range = start, int(identifier.split("-")[1])
    return start


def _edge(entry: str, where: str, number: int) -> re.Match:
    """Return the match of `EDGE` (relation, nucleus, edu, head, depth) in `Discourse=...` of the EDU `number`."""
    edge = EDGE.fullmatch(entry.removeprefix("Discourse=").split(";")[0])  # without secondary edges
    if edge is None:
        raise TreebankError(f"{where}: {entry!r} is not Discourse=relation:EDU->head:depth")
    if int(edge["edu"]) != number:
        raise TreebankError(f"{where}: EDU {edge['edu']} where EDU {number} should begin")
    if edge["depth"] is None:
        raise TreebankError(f"{where}: {entry!r} has no depth, which the tree needs; use a newer release of GUM")
    return edge


def _tree(reading: _Reading) -> Tree:
    """Build the tree from the edges of all EDUs, which are numbered from 1 in the file."""
    rows = []  # arguments of `from_dependencies` for each EDU: head, relation, kind, depth
    for _, where, edge in reading.edges:
        if not edge["head"]:  # only the root has no head
            rows.append((-1, "ROOT", "root", int(edge["depth"])))
            continue
        head = int(edge["head"]) - 1
        if not 0 <= head < len(reading.edges):
            raise TreebankError(f"{where}: {reading.id}: the head {edge['head']} does not exist")
        kind = "m" if edge["nucleus"] else "s"  # a further nucleus, or a satellite
        rows.append((head, edge["relation"], kind, int(edge["depth"])))
    try:
        return from_dependencies(*zip(*rows))
    except TreeError as error:
        first_line = reading.edges[0][1]
        raise TreebankError(f"{first_line}: {reading.id}: not a tree: {error} (EDUs counted from 0)") from error


def _split_at(text: str, starts: list[int]) -> list[Offsets]:
    """Return the offsets of the pieces of a text that begin at `starts`, without white space at their ends."""
    ends = [*starts[1:], len(text)]
    return [(start, start + len(text[start:end].rstrip())) for start, end in zip(starts, ends)]


def from_dependencies(
    heads: Sequence[int], relations: Sequence[str], kinds: Sequence[str], depths: Sequence[int]
) -> Tree:
    """Convert dependencies between EDUs to a tree; the arguments have one entry per EDU.

    The head of a node is the head of its first nucleus (an EDU is its own head); the heads of the other children depend
    on this EDU. No information is lost if all nuclei of a node have the same relation.

    Args:
        heads: index of the head of each EDU, -1 for the root.
        relations: relation to the head; a further nucleus has the relation of all nuclei, the root has `ROOT`.
        kinds: `m` for a further nucleus, `s` for a satellite, `root` for the root.
        depths: order in which dependents are attached to a head, 0 for the innermost; equal for children of one node.

    Raises:
        TreeError: if there is no single root, or there is a cycle or crossing dependencies.
    """
    dependents: dict[int, list[int]] = defaultdict(list)  # by head
    for edu, head in enumerate(heads):
        dependents[head].append(edu)
    roots = dependents[-1]
    if len(roots) != 1:
        edus = f": EDUs {', '.join(map(str, roots))}" if roots else ""
        raise TreeError(f"{len(roots)} roots{edus}; a tree has one")
    order = list(roots)  # heads before their dependents
    for edu in order:
        order.extend(dependents[edu])
    if unreachable := set(range(len(heads))) - set(order):
        raise TreeError(f"EDU {min(unreachable)} depends on itself in a cycle")
    extents: dict[int, tuple[int, int]] = {}  # first and last EDU of the largest constituent of each head
    nodes = []
    for head in reversed(order):  # dependents before their head
        start = end = head
        for depth in sorted({depths[edu] for edu in dependents[head]}):  # from the innermost node to the outermost
            attached = [(*extents[edu], edu) for edu in dependents[head] if depths[edu] == depth]
            children = sorted([(start, end, head), *attached])  # (first EDU, last EDU, head), in the order of the text
            for (_, end_before, first), (start_after, _, second) in pairwise(children):
                if start_after != end_before + 1:
                    edus = f"EDUs {first} and {second}"
                    raise TreeError(f"{edus} are attached next to each other, but are apart or cross")
            nodes.append(_node_of(children, head, relations, kinds))
            start, end = children[0][0], children[-1][1]
        extents[head] = start, end
    return Tree(len(heads), tuple(nodes))


def _node_of(children: list[tuple[int, int, int]], head: int, relations: Sequence[str], kinds: Sequence[str]) -> Node:
    """Return the node over children (start, end, head); the child with the head of the node is its first nucleus."""
    nuclearity = "".join("N" if edu == head or kinds[edu] == "m" else "S" for *_, edu in children)
    shared = next((relations[edu] for *_, edu in children if edu != head and kinds[edu] == "m"), SPAN)  # of all nuclei
    names = tuple(shared if edu == head else relations[edu] for *_, edu in children)
    return Node(tuple(start for start, *_ in children), end=children[-1][1], nuclearity=nuclearity, relations=names)
