"""Random trees and documents for property tests, and the dependencies that a tree implies."""

from collections import Counter

from hypothesis import strategies as st

from datamodules.discourse.records import TreebankDocument, join_edus
from datamodules.discourse.trees import SPAN, Node, Tree

RELATIONS = ["elaboration", "cause", "same-unit"]


@st.composite
def trees(draw, most_edus: int = 12, satellites: bool = True) -> Tree:
    """A tree parted at random; nuclei of a node share a relation; with `satellites`, a nucleus may have several."""
    size = draw(st.integers(1, most_edus))
    nodes, open_spans = [], [(0, size - 1)]
    while open_spans:
        start, end = open_spans.pop()
        if start == end:
            continue
        cuts = draw(st.sets(st.integers(start + 1, end), min_size=1, max_size=end - start))
        starts = (start, *sorted(cuts))
        if draw(st.booleans()) or (len(starts) > 2 and not satellites):
            node = Node.of(starts, end, "N" * len(starts), draw(st.sampled_from(["list", "contrast"])))
        else:
            nucleus = draw(st.integers(0, len(starts) - 1))
            names = [SPAN if i == nucleus else draw(st.sampled_from(RELATIONS)) for i in range(len(starts))]
            node = Node(starts, end, "".join("NS"[i != nucleus] for i in range(len(starts))), tuple(names))
        nodes.append(node)
        open_spans += node.children
    return Tree(size, tuple(nodes))


WORDS = st.text(st.sampled_from("abcé(&<>\"'ß漢_|;:=->"), min_size=1, max_size=8).filter(lambda word: "_!" not in word)


@st.composite
def documents(draw, **options) -> TreebankDocument:
    """A document whose EDUs are a few odd words each."""
    tree = draw(trees(**options))
    text, edus = join_edus([" ".join(draw(st.lists(WORDS, min_size=1, max_size=3))) for _ in range(tree.size)])
    return TreebankDocument("doc", text, edus, tree=tree)


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
