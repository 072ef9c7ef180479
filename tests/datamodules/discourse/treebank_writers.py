"""Writers of the treebank formats that the suite reads, for round trips."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

from datamodules.discourse.formats.conllu import COLUMNS
from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.trees import Tree


def to_dependencies(tree: Tree) -> tuple[tuple, ...]:
    """The dependencies between EDUs that a tree implies: the arguments of `from_dependencies`."""
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
    return tuple(heads), tuple(relations), tuple(kinds), tuple(depths)


def write_conllu(documents: Iterable[TreebankDocument]) -> str:
    """Documents as CoNLL-U: words are what stands between spaces, and columns beside FORM and MISC are empty.

    Sentences are those of the document, or its paragraphs, or the whole; the text between them is written as a space,
    or as a new paragraph.
    """
    return "".join(_conllu_document(document) for document in documents)


def _conllu_document(document: TreebankDocument) -> str:
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
