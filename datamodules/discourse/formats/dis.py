"""Reader of the bracketed `.dis` format of the RST Discourse Treebank (Carlson et al. 2002)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath

from datamodules.discourse.records import TreebankDocument, TreebankError, join_edus, validate_document
from datamodules.discourse.trees import SPAN, Node, Tree, TreeError
from datamodules.text.lines import is_blank

TOKEN = re.compile(r"_!(?P<text>.*?)_!|(?P<word>[()]|[^\s()]+)", re.DOTALL)
ERROR_MARK = re.compile(r"//TT_ERR.*")  # left by the annotation tool in some files of the treebank
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
        """Inner brackets that are nodes of the tree."""
        return [bracket for bracket in self.inner if bracket.name in ROLES]


def read(text: str, name: str) -> list[TreebankDocument]:
    """Return the document of a file; its id is the file name without suffixes, its text the EDUs joined by spaces.

    `<P>` at the end of an EDU ends a paragraph; without it, paragraphs are unknown. The relation of a node is that of
    its satellite, or the one that its nuclei share; a single nucleus has the relation `span`.

    Raises:
        TreebankError: if brackets do not match, EDUs are missing or out of order, or the tree is invalid; the message
            has the line.
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
                raise TreebankError(f"{name}:{bracket.line}: EDU {number} occurs twice")
            texts[number] = _text(bracket, name)
            extents[id(bracket)] = number - 1, number - 1
    missing = set(range(1, len(texts) + 1)) - set(texts)
    if missing:
        raise TreebankError(f"{name}: EDU {min(missing)} is missing; EDUs are numbered from 1")
    try:
        tree = Tree(len(texts), tuple(nodes))
    except TreeError as error:
        raise TreebankError(f"{name}: not a tree: {error} (EDUs counted from 0)") from error
    return [_document(PurePath(name).name.split(".")[0], [texts[n] for n in sorted(texts)], tree, name)]


def _bracketed(text: str, name: str) -> _Bracket:
    """Return the outermost bracket of a file."""
    top = _Bracket(0)
    opened = [top]
    for token, quoted, line in _tokens(text):
        if token == "(" and not quoted:
            bracket = _Bracket(line)
            opened[-1].inner.append(bracket)
            opened.append(bracket)
        elif token == ")" and not quoted:
            if len(opened) == 1:
                raise TreebankError(f"{name}:{line}: a closing bracket without an opening one")
            opened.pop()
        elif not opened[-1].name:
            opened[-1].name = token.lower()
        else:
            opened[-1].values.append(token)
    if len(opened) > 1:
        raise TreebankError(f"{name}:{opened[-1].line}: this opening bracket is not closed; is the file complete?")
    if len(top.inner) != 1:
        raise TreebankError(f"{name}: {len(top.inner)} trees in this file; a .dis file has one")
    return top.inner[0]


def _tokens(text: str) -> Iterator[tuple[str, bool, int]]:
    """Yield brackets, words and quoted texts, each with whether it was quoted, and its line."""
    text = ERROR_MARK.sub("", text)
    line, position = 1, 0
    for match in TOKEN.finditer(text):
        line += text.count("\n", position, match.start())
        position = match.start()
        quoted = match["text"] is not None
        yield match["text"] if quoted else match["word"], quoted, line


def _node(bracket: _Bracket, extents: dict[int, tuple[int, int]], name: str) -> Node:
    children = [extents[id(child)] for child in bracket.children]
    letters = "".join(ROLES[child.name] for child in bracket.children)
    relations = []
    for child in bracket.children:
        relation = child.find("rel2par")
        if relation is None or len(relation.values) != 1 or not ROLES[child.name]:
            raise TreebankError(f"{name}:{child.line}: a {child.name} inside another node without (rel2par ...)")
        relations.append(relation.values[0])
    if letters.count("N") == 1:
        if relations[letters.index("N")].lower() != SPAN:
            relation = relations[letters.index("N")]
            problem = f"the only nucleus has the relation {relation} instead of `span`"
            raise TreebankError(f"{name}:{bracket.line}: {problem}")
        relations[letters.index("N")] = SPAN
    node = Node(tuple(start for start, _ in children), children[-1][1], letters, tuple(relations))
    span = bracket.find("span")
    covered = [str(node.start + 1), str(node.end + 1)]
    if span is None or span.values != covered:
        raise TreebankError(
            f"{name}:{bracket.line}: the children cover EDUs {' to '.join(covered)}, "
            f"but the span of the node is {' to '.join(span.values) if span else 'missing'}"
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
    if is_blank(content.removesuffix(PARAGRAPH_END)):
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
