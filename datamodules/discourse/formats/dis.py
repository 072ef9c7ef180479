"""The bracketed `.dis` of the RST Discourse Treebank (Carlson et al. 2002)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath

from datamodules.discourse.records import TreebankDocument, TreebankError, join_edus, validate_document
from datamodules.discourse.trees import SPAN, Node, Tree, TreeError

TOKEN = re.compile(r"_!(?P<text>.*?)_!|(?P<word>[()]|[^\s()]+)", re.DOTALL)
ERROR_MARK = re.compile(r"//TT_ERR.*")  # left behind by the annotation tool in some files of the treebank
PARAGRAPH_END = "<P>"
ROLES = {"root": "", "nucleus": "N", "satellite": "S"}


@dataclass
class _Bracket:
    """A bracket `(name value ... bracket ...)`."""

    line: int
    name: str = ""
    values: list[str] = field(default_factory=list)
    inner: list["_Bracket"] = field(default_factory=list)

    def find(self, name: str) -> "_Bracket | None":
        return next((bracket for bracket in self.inner if bracket.name == name), None)

    @property
    def children(self) -> list["_Bracket"]:
        """Those that are nodes of the tree."""
        return [bracket for bracket in self.inner if bracket.name in ROLES]


def read(text: str, name: str) -> list[TreebankDocument]:
    """The document of a file; its id is the file's name without suffixes, its text the EDUs joined by a space.

    `<P>` at the end of an EDU ends a paragraph; a file without any does not tell paragraphs. The relation of a
    satellite is that of its node, as is the one that nuclei share; a single nucleus bears `span`.

    Raises:
        TreebankError: if brackets do not match, EDUs are missing or out of order, or the tree is none; with the line.
    """
    root = _bracketed(text, name)
    if root.name != "root":
        raise TreebankError(f"{name}:{root.line}: begins with {root.name!r}, not with Root; is it a .dis file?")
    order = [root]
    for bracket in order:
        order += bracket.children
    texts: dict[int, str] = {}
    nodes, extents = [], {}
    for bracket in reversed(order):
        if bracket.children:
            node = _node(bracket, extents, name)
            nodes.append(node)
            extents[id(bracket)] = node.start, node.end
        else:
            number = _number(bracket, name)
            if number in texts:
                raise TreebankError(f"{name}:{bracket.line}: EDU {number} comes twice")
            texts[number] = _text(bracket, name)
            extents[id(bracket)] = number - 1, number - 1
    missing = set(range(1, len(texts) + 1)) - set(texts)
    if missing:
        raise TreebankError(f"{name}: EDU {min(missing)} is missing; EDUs are numbered from 1")
    try:
        tree = Tree(len(texts), tuple(nodes))
    except TreeError as error:
        raise TreebankError(f"{name}: no tree: {error} (EDUs counted from 0)") from error
    return [_document(PurePath(name).name.split(".")[0], [texts[n] for n in sorted(texts)], tree, name)]


def _bracketed(text: str, name: str) -> _Bracket:
    """The outermost bracket of a file."""
    top = _Bracket(0)
    opened = [top]
    for token, quoted, line in _tokens(text):
        if token == "(" and not quoted:
            bracket = _Bracket(line)
            opened[-1].inner.append(bracket)
            opened.append(bracket)
        elif token == ")" and not quoted:
            if len(opened) == 1:
                raise TreebankError(f"{name}:{line}: a bracket closes that was not opened")
            opened.pop()
        elif not opened[-1].name:
            opened[-1].name = token.lower()
        else:
            opened[-1].values.append(token)
    if len(opened) > 1:
        raise TreebankError(f"{name}:{opened[-1].line}: the bracket that opens here does not close; is the file whole?")
    if len(top.inner) != 1:
        raise TreebankError(f"{name}: {len(top.inner)} trees in this file; a .dis file has one")
    return top.inner[0]


def _tokens(text: str) -> Iterator[tuple[str, bool, int]]:
    """Brackets, words and quoted texts; whether quoted; the line."""
    text = ERROR_MARK.sub("", text)
    line, at = 1, 0
    for match in TOKEN.finditer(text):
        line += text.count("\n", at, match.start())
        at = match.start()
        quoted = match["text"] is not None
        yield match["text"] if quoted else match["word"], quoted, line


def _node(bracket: _Bracket, extents: dict[int, tuple[int, int]], name: str) -> Node:
    children = [extents[id(child)] for child in bracket.children]
    letters = "".join(ROLES[child.name] for child in bracket.children)
    relations = []
    for child in bracket.children:
        relation = child.find("rel2par")
        if relation is None or len(relation.values) != 1 or not ROLES[child.name]:
            raise TreebankError(f"{name}:{child.line}: a {child.name} without (rel2par ...) inside of another node")
        relations.append(relation.values[0])
    if letters.count("N") == 1:
        if relations[letters.index("N")].lower() != SPAN:
            found = relations[letters.index("N")]
            raise TreebankError(f"{name}:{bracket.line}: the only nucleus has the relation {found} instead of `span`")
        relations[letters.index("N")] = SPAN
    node = Node(tuple(start for start, _ in children), children[-1][1], letters, tuple(relations))
    span = bracket.find("span")
    told = [str(node.start + 1), str(node.end + 1)]
    if span is None or span.values != told:
        raise TreebankError(
            f"{name}:{bracket.line}: the children cover EDUs {' to '.join(told)}, "
            f"but the node says {' to '.join(span.values) if span else 'nothing'}"
        )
    return node


def _number(bracket: _Bracket, name: str) -> int:
    leaf = bracket.find("leaf")
    if leaf is None or len(leaf.values) != 1 or not leaf.values[0].isdecimal():
        raise TreebankError(f"{name}:{bracket.line}: a {bracket.name} with neither children nor (leaf NUMBER)")
    return int(leaf.values[0])


def _text(bracket: _Bracket, name: str) -> str:
    text = bracket.find("text")
    content = " ".join(" ".join(text.values).split()) if text else ""
    if not content.removesuffix(PARAGRAPH_END).strip():
        raise TreebankError(f"{name}:{bracket.line}: an EDU without text; write (text _!..._!)")
    return content


def _document(identifier: str, texts: list[str], tree: Tree, name: str) -> TreebankDocument:
    clean = [text.removesuffix(PARAGRAPH_END).rstrip() for text in texts]
    text, edus = join_edus(clean)
    ends = [edu for edu, raw in enumerate(texts) if raw.endswith(PARAGRAPH_END)]
    if ends and ends[-1] != len(texts) - 1:
        ends.append(len(texts) - 1)
    starts = [0] + [end + 1 for end in ends[:-1]]
    paragraphs = [(edus[start][0], edus[end][1]) for start, end in zip(starts, ends, strict=False)]
    return validate_document(TreebankDocument(identifier, text, edus, paragraphs=paragraphs, tree=tree), name)
