"""Writers of the treebank formats that the suite reads, for round trips."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from datamodules.discourse.dependencies import Dependencies
from datamodules.discourse.formats.conllu import COLUMNS
from datamodules.discourse.formats.dis import PARAGRAPH_END
from datamodules.discourse.formats.rs3 import SPAN, Extent
from datamodules.discourse.records import TreebankDocument, TreebankError
from datamodules.discourse.trees import Tree


def to_dependencies(tree: Tree) -> Dependencies:
    """The dependencies between EDUs that a tree implies (see `Dependencies`)."""
    head_of = {(edu, edu): edu for edu in range(tree.size)}
    heads, relations = [-1] * tree.size, ["ROOT"] * tree.size
    kinds, depths = ["root"] * tree.size, [0] * tree.size
    level: Counter[int] = Counter()
    for node in reversed(tree.nodes):  # inner nodes first
        first = node.nuclearity.index("N")
        children = [head_of[child] for child in node.children]
        head = head_of[node.start, node.end] = children[first]
        for place, child in enumerate(children):
            if place != first:
                heads[child], depths[child] = head, level[head]
                relations[child], kinds[child] = node.relations[place], "ms"[node.nuclearity[place] == "S"]
        level[head] += 1
    return Dependencies(tuple(heads), tuple(relations), tuple(kinds), tuple(depths))


def write_conllu(documents: Iterable[TreebankDocument]) -> str:
    """Documents as CoNLL-U: words are what stands between spaces, and columns beside FORM and MISC are empty.

    Sentences are those of the document, or its paragraphs, or the whole; the text between them is written as a space,
    or as a new paragraph.

    Raises:
        TreebankError: if a document has no tree, or a sentence ends within a word.
    """
    return "".join(_conllu_document(document) for document in documents)


def _conllu_document(document: TreebankDocument) -> str:
    if document.tree is None:
        raise TreebankError(f"{document.id}: has no tree to write")
    edges = _edges(document)
    begins = {start for start, _ in document.paragraphs}
    sentences = document.sentences or document.paragraphs or [(0, len(document.text))]
    lines = [f"# newdoc id = {document.id}"]
    lines += [f"# meta::genre = {document.genre}"] if document.genre else []
    for number, (start, end) in enumerate(sentences, 1):
        lines += [f"# sent_id = {document.id}-{number}"]
        lines += [f"# text = {' '.join(document.text[start:end].split())}"]
        lines += ["# newpar"] if start in begins else []
        for place, (at, form) in enumerate(_words(document.text, start, end, edges), 1):
            after = document.text[at + len(form) : at + len(form) + 1]
            misc = [edges[at]] if at in edges else []
            misc += ["SpaceAfter=No"] if after and not after.isspace() else []
            lines.append("\t".join([str(place), form, *["_"] * (COLUMNS - 3), "|".join(misc) or "_"]))
        lines.append("")
    return "\n".join(lines) + "\n"


def _words(text: str, start: int, end: int, edges: dict[int, str]) -> Iterator[tuple[int, str]]:
    """Split a text at spaces and at the beginnings of EDUs."""
    for match in re.finditer(r"\S+", text[start:end]):
        first, last = start + match.start(), start + match.end()
        cuts = [first, *(at for at in range(first + 1, last) if at in edges), last]
        yield from ((one, text[one:other]) for one, other in pairwise(cuts))


def _edges(document: TreebankDocument) -> dict[int, str]:
    """`Discourse=...` by the offset where each EDU begins."""
    edges = {}
    columns = zip(document.edus, *to_dependencies(document.tree), strict=True)
    for edu, ((start, _), head, relation, kind, depth) in enumerate(columns, 1):
        if head < 0:
            edges[start] = f"Discourse=ROOT:{edu}:{depth}"
        else:
            edges[start] = f"Discourse={relation}{'_m' if kind == 'm' else ''}:{edu}->{head + 1}:{depth}"
    return edges


def write_dis(document: TreebankDocument) -> str:
    """The text of a `.dis` file.

    Raises:
        TreebankError: if there is no tree, or an EDU has the quotes `_!` in it.
    """
    if document.tree is None:
        raise TreebankError(f"{document.id}: has no tree to write")
    texts = [" ".join(text.split()) for text in document.edu_texts]
    for number, text in enumerate(texts):
        if "_!" in text:
            raise TreebankError(f"{document.id}: EDU {number} has `_!` in it, which a .dis file uses as quotes")
    for edu in _paragraph_ends(document):
        texts[edu] += PARAGRAPH_END
    lines, pending = [], [(0, (0, len(texts) - 1), "Root", "")]
    while pending:
        depth, (start, end), role, relation = pending.pop()
        if depth < 0:
            lines.append("  " * ~depth + ")")
            continue
        label = f" (rel2par {relation})" if relation else ""
        if start == end:
            lines.append("  " * depth + f"( {role} (leaf {start + 1}){label} (text _!{texts[start]}_!) )")
            continue
        lines.append("  " * depth + f"( {role} (span {start + 1} {end + 1}){label}")
        node = document.tree.node(start, end)
        pending.append((~depth, (start, end), "", ""))
        for child, letter, name in reversed(list(zip(node.children, node.nuclearity, node.relations, strict=True))):
            pending.append((depth + 1, child, "Nucleus" if letter == "N" else "Satellite", name))
    return "\n".join(lines) + "\n"


def _paragraph_ends(document: TreebankDocument) -> list[int]:
    """The last EDU that begins in each paragraph."""
    begins = [start for start, _ in document.edus]
    ends = {sum(begin < end for begin in begins) - 1 for _, end in document.paragraphs}
    return sorted(ends - {-1})


def write_rs3(document: TreebankDocument) -> str:
    """The text of an `.rs3` file, which is an `.rs4` file as well.

    A node with satellites beside several nuclei, which the format does not know, is written as a multinuclear group
    that they hang on.

    Raises:
        TreebankError: if there is no tree, or a satellite hangs on a multinuclear node of its own relation, so that it
            could not be told from the nuclei.
    """
    if document.tree is None:
        raise TreebankError(f"{document.id}: has no tree to write")
    parents = _parents(document.tree, document.id)
    relations = {("rst", name) for kind, _, name in parents.values() if kind == "S"}
    relations |= {("multinuc", name) for kind, _, name in parents.values() if kind == "N" and name != SPAN}
    lines = ["<rst>", "\t<header>", "\t\t<relations>"]
    lines += [f'\t\t\t<rel name={quoteattr(name)} type="{kind}"/>' for kind, name in sorted(relations)]
    lines += ["\t\t</relations>", "\t</header>", "\t<body>"]
    size = document.tree.size
    numbers = {(edu, edu): edu + 1 for edu in range(size)}
    numbers |= {(node.start, node.end): size + 1 + place for place, node in enumerate(document.tree.nodes)}
    for extent, number in numbers.items():
        _, parent, relation = parents.get(extent, ("", None, ""))
        link = f' parent="{numbers[parent]}" relname={quoteattr(relation)}' if parent else ""
        if number <= size:
            content = escape(" ".join(document.edu_texts[extent[0]].split()))
            lines.append(f'\t\t<segment id="{number}"{link}>{content}</segment>')
        else:
            kind = "multinuc" if document.tree.node(*extent).nuclearity.count("N") > 1 else "span"
            lines.append(f'\t\t<group id="{number}" type="{kind}"{link}/>')
    return "\n".join([*lines, "\t</body>", "</rst>", ""])


def _parents(tree: Tree, identifier: str) -> dict[Extent, tuple[str, Extent, str]]:
    """Return role (nucleus or satellite), parent and relation of each EDU and node, except for the root."""
    parents = {}
    for node in tree.nodes:
        several = node.nuclearity.count("N") > 1
        whole = (node.start, node.end)
        nucleus = node.children[node.nuclearity.index("N")]
        for child, letter, relation in zip(node.children, node.nuclearity, node.relations, strict=True):
            on = whole if several or letter == "N" else nucleus
            parents[child] = (letter, on, relation)
            group = tree.node(*on)
            nuclear = {name for name, kind in zip(group.relations, group.nuclearity) if kind == "N"} if group else ()
            if letter == "S" and group and group.nuclearity.count("N") > 1 and relation in nuclear:
                raise TreebankError(
                    f"{identifier}: EDUs {child[0]} to {child[1]} are a satellite `{relation}` of a multinuclear node "
                    f"`{relation}`, which .rs3 cannot tell apart; rename one of them"
                )
    return parents


def write_json(documents: Iterable[TreebankDocument]) -> str:
    """Documents as JSON Lines that `read_lines` reads back."""
    return "".join(_json_line(document) + "\n" for document in documents)


def _json_line(document: TreebankDocument) -> str:
    record: dict[str, Any] = {"id": document.id, "genre": document.genre, "license": document.licence}
    record |= {"text": document.text, "edus": document.edus}
    record |= {"sentences": document.sentences, "paragraphs": document.paragraphs}
    if document.tree is not None:
        record |= {"tree": document.tree.binary().nested(), "tree_nary": document.tree.nested()}
    return json.dumps(record, ensure_ascii=False)
