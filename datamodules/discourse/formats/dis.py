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

    line: int  # where it opens
    name: str = ""  # in lower case
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

    `<P>` at the end of an EDU ends a paragraph; a file without any has no paragraphs. Each child of a node has its
    relation to the node (`rel2par`), which is `span` for a single nucleus.

    Raises:
        TreebankError: if brackets do not match, EDUs are missing or out of order, or the tree is invalid; the message
            has the line.
    """
    root = _bracketed(text, name)
    if root.name != "root":
        raise TreebankError(f"{name}:{root.line}: begins with {root.name!r}, not with Root; is it a .dis file?")
    order = [root]  # breadth first, since recursion fails for deep trees
    for bracket in order:
        order += bracket.children
    texts: dict[int, str] = {}  # by number of the EDU, from 1
    nodes: list[Node] = []
    extents: dict[int, tuple[int, int]] = {}  # first and last EDU of each bracket, from 0, by its identity
    for bracket in reversed(order):  # children before their parent
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
    if missing := set(range(1, len(texts) + 1)) - set(texts):
        raise TreebankError(f"{name}: EDU {min(missing)} is missing; EDUs are numbered from 1")
    try:
        tree = Tree(len(texts), tuple(nodes))
    except TreeError as error:
        raise TreebankError(f"{name}: not a tree: {error} (EDUs counted from 0)") from error
    identifier = PurePath(name).name.split(".")[0]  # wsj_0600.out.dis -> wsj_0600
    return [_document(identifier, [texts[number] for number in sorted(texts)], tree, name)]


def _bracketed(text: str, name: str) -> _Bracket:
    """Parse the content of the file `name` and return its outermost bracket."""
    top = _Bracket(line=0)  # the whole file
    opened = [top]  # stack of brackets that are not closed yet
    for token, quoted, line in _tokens(text):  # brackets within a quoted text are characters of the text
        if token == "(" and not quoted:
            bracket = _Bracket(line)
            opened[-1].inner.append(bracket)
            opened.append(bracket)
        elif token == ")" and not quoted:
            if len(opened) == 1:
                raise TreebankError(f"{name}:{line}: a closing bracket without an opening one")
            opened.pop()
        elif not opened[-1].name:  # the first word in a bracket is its name, all others are values
            opened[-1].name = token.lower()
        else:
            opened[-1].values.append(token)
    if len(opened) > 1:
        raise TreebankError(f"{name}:{opened[-1].line}: this opening bracket is not closed; is the file complete?")
    if len(top.inner) != 1:
        raise TreebankError(f"{name}: {len(top.inner)} trees in this file; a .dis file has one")
    return top.inner[0]


def _tokens(text: str) -> Iterator[tuple[str, bool, int]]:
    """Yield (token, whether it is a quoted text `_!...!_`, line from 1) for all brackets, words and quoted texts."""
    text = ERROR_MARK.sub("", text)  # error messages that the annotation tool left in some files
    line, position = 1, 0  # of the last token
    for match in TOKEN.finditer(text):
        line += text.count("\n", position, match.start())
        position = match.start()
        quoted = match["text"] is not None
        yield match["text"] if quoted else match["word"], quoted, line


def _node(bracket: _Bracket, extents: dict[int, tuple[int, int]], name: str) -> Node:
    """Return the node of a bracket in the file `name`; `extents` are (first, last) EDU of its children, by `id()`."""
    children = [extents[id(child)] for child in bracket.children]  # (first, last) EDU of each
    nuclearity = "".join(ROLES[child.name] for child in bracket.children)
    relations = []
    for child in bracket.children:
        relation = child.find("rel2par")
        is_root = not ROLES[child.name]  # its role is "", not N or S; a root inside another node is an error
        if is_root or relation is None or len(relation.values) != 1:
            raise TreebankError(f"{name}:{child.line}: a {child.name} inside another node without (rel2par ...)")
        relations.append(relation.values[0])
    if nuclearity.count("N") == 1:  # then the satellites have the relations, and the nucleus has `span`
        nucleus = nuclearity.index("N")
        if relations[nucleus].lower() != SPAN:
            problem = f"the only nucleus has the relation {relations[nucleus]} instead of `span`"
            raise TreebankError(f"{name}:{bracket.line}: {problem}")
        relations[nucleus] = SPAN  # in place of another spelling, such as `Span`
    # fields of `Node`: first EDU of each child, last EDU, nuclearity, relations
    node = Node(tuple(start for start, _ in children), children[-1][1], nuclearity, tuple(relations))
    span = bracket.find("span")
    covered = [str(node.start + 1), str(node.end + 1)]  # numbers in the file begin with 1
    if span is None or span.values != covered:
        stated = " to ".join(span.values) if span else "missing"
        problem = f"the children cover EDUs {' to '.join(covered)}, but the span of the node is {stated}"
        raise TreebankError(f"{name}:{bracket.line}: {problem}")
    return node


def _number(bracket: _Bracket, name: str) -> int:
    leaf = bracket.find("leaf")
    if leaf is None or len(leaf.values) != 1 or not leaf.values[0].isdecimal():
        raise TreebankError(f"{name}:{bracket.line}: a {bracket.name} with neither children nor (leaf NUMBER)")
    return int(leaf.values[0])


def _text(bracket: _Bracket, name: str) -> str:
    text = bracket.find("text")
    content = " ".join(" ".join(text.values).split()) if text else ""  # line breaks become spaces
    if is_blank(content.removesuffix(PARAGRAPH_END)):
        raise TreebankError(f"{name}:{bracket.line}: an EDU without text; write (text _!..._!)")
    return content


def _document(identifier: str, edu_texts: list[str], tree: Tree, name: str) -> TreebankDocument:
    """Join EDUs to the document of the file `name`; EDUs with <P> at the end are the last of their paragraph."""
    text, edus = join_edus([edu_text.removesuffix(PARAGRAPH_END).rstrip() for edu_text in edu_texts])
    last_edus = [edu for edu, edu_text in enumerate(edu_texts) if edu_text.endswith(PARAGRAPH_END)]
    if last_edus and last_edus[-1] != len(edu_texts) - 1:
        last_edus.append(len(edu_texts) - 1)  # the last paragraph may lack the mark
    first_edus = [0, *(last + 1 for last in last_edus)]
    paragraphs = [(edus[first][0], edus[last][1]) for first, last in zip(first_edus, last_edus)]
    return validate_document(TreebankDocument(identifier, text, edus, paragraphs=paragraphs, tree=tree), name)
