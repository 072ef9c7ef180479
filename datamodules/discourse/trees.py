"""RST trees over the EDUs of a document: binary or n-ary, flat in memory, without recursion.

A tree is stored as the nodes that it has, each with where its children begin. All that walks it is a loop, so that a
tree of thousands of EDUs, however deep, is no deeper than another.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

SPAN = "span"  # the relation of the only nucleus of a node: that of its satellites says it all


class TreeError(ValueError):
    """What is no RST tree: one line with the EDUs where it goes wrong."""


class Span(NamedTuple):
    """An internal node of a binary tree.

    Attributes:
        start: first EDU.
        split: last EDU of the left child; the right one is `split + 1` to `end`.
        end: last EDU, inclusive.
        nuclearity: `NS`, `SN` or `NN`.
        relation: that of the satellite, or the one that the nuclei of `NN` share.
    """

    start: int
    split: int
    end: int
    nuclearity: str
    relation: str


class Node(NamedTuple):
    """An internal node of any tree.

    Attributes:
        starts: first EDU of each child, in order; at least two.
        end: last EDU of the node, inclusive.
        nuclearity: a letter a child, `N` or `S`; at least one `N`.
        relations: one a child: a satellite's own, that of a nucleus among others, `span` for a single nucleus.
    """

    starts: tuple[int, ...]
    end: int
    nuclearity: str
    relations: tuple[str, ...]

    @property
    def start(self) -> int:
        """First EDU of the node."""
        return self.starts[0]

    @property
    def children(self) -> list[tuple[int, int]]:
        """First and last EDU of each child."""
        ends = [start - 1 for start in self.starts[1:]] + [self.end]
        return list(zip(self.starts, ends, strict=True))

    @property
    def relation(self) -> str:
        """The relation of the first satellite, or of the first nucleus where there is none."""
        return self.relations[self.nuclearity.find("S") if "S" in self.nuclearity else 0]


def mononuclear(start: int, split: int, end: int, nuclearity: str, relation: str) -> Node:
    """A node of two children, a nucleus and a satellite."""
    relations = (SPAN, relation) if nuclearity == "NS" else (relation, SPAN)
    return Node((start, split + 1), end, nuclearity, relations)


def multinuclear(starts: Iterable[int], end: int, relation: str) -> Node:
    """A node whose children are all nuclei and share a relation."""
    starts = tuple(starts)
    return Node(starts, end, "N" * len(starts), (relation,) * len(starts))


@dataclass(frozen=True)
class Tree:
    """An RST tree over EDUs 0 to `size - 1`. Equal trees are equal objects; a tree of one EDU has no nodes.

    Attributes:
        size: number of EDUs.
        nodes: internal nodes in pre-order; given in any order.

    Raises:
        TreeError: if the nodes are no tree over these EDUs.
    """

    size: int
    nodes: tuple[Node, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 1:
            raise TreeError("a tree needs at least one EDU")
        object.__setattr__(self, "nodes", tuple(sorted(self.nodes, key=lambda node: (node.start, -node.end))))
        for node in self.nodes:
            _check_node(node)
        self._check_nesting()

    def _check_nesting(self) -> None:
        """Every child of several EDUs is a node, and there is no other node."""
        expected = [(0, self.size - 1)]
        found = iter(self.nodes)
        while expected:
            start, end = expected.pop()
            if start == end:
                continue
            node = next(found, None)
            if node is None or (node.start, node.end) != (start, end):
                instead = "" if node is None else f", but one over EDUs {node.start} to {node.end}"
                raise TreeError(f"no node covers EDUs {start} to {end}{instead}")
            expected.extend(reversed(node.children))
        extra = next(found, None)
        if extra is not None:
            raise TreeError(f"the node over EDUs {extra.start} to {extra.end} is in the tree twice or outside of it")

    @cached_property
    def _by_span(self) -> dict[tuple[int, int], Node]:
        return {(node.start, node.end): node for node in self.nodes}

    def node(self, start: int, end: int) -> Node | None:
        """The node that covers these EDUs, first and last; None for a leaf and for what is no constituent."""
        return self._by_span.get((start, end))

    def spans(self) -> list[Span]:
        """The nodes of a binary tree in pre-order.

        Raises:
            TreeError: if a node has more than two children: `binary()` first.
        """
        spans = []
        for node in self.nodes:
            if len(node.starts) != 2:
                what = f"the node over EDUs {node.start} to {node.end} has {len(node.starts)} children"
                raise TreeError(f"{what}; call binary() first")
            spans.append(Span(node.start, node.starts[1] - 1, node.end, node.nuclearity, node.relation))
        return spans

    @classmethod
    def from_spans(cls, spans: Iterable[Span], size: int) -> "Tree":
        """The binary tree with these nodes, in any order."""
        nodes = []
        for start, split, end, nuclearity, relation in spans:
            if nuclearity == "NN":
                nodes.append(multinuclear((start, split + 1), end, relation))
            elif nuclearity in ("NS", "SN"):
                nodes.append(mononuclear(start, split, end, nuclearity, relation))
            else:
                raise TreeError(f"EDUs {start} to {end}: nuclearity {nuclearity!r} is none of NS, SN, NN")
        return cls(size, tuple(nodes))

    def binary(self) -> "Tree":
        """The tree with two children a node.

        Nuclei branch to the right, each new node with the relation of the old: A B C becomes A (B C), as usual for
        RST-DT and as in the binary trees of GUM. Several satellites of one nucleus are attached one after the other,
        those behind it first, nearest first, then those before it: S N S becomes S (N S), N S T becomes (N S) T.
        """
        nodes = []
        for node in self.nodes:
            nodes.extend([node] if len(node.starts) == 2 else _binarised(node))
        return Tree(self.size, tuple(nodes))

    def map_relations(self, change: Callable[[str], str]) -> "Tree":
        """The tree with other names of relations; `span` stays."""
        nodes = [
            node._replace(relations=tuple(name if name == SPAN else change(name) for name in node.relations))
            for node in self.nodes
        ]
        return Tree(self.size, tuple(nodes))

    def nested(self) -> list | int:
        """The tree as JSON: an EDU's number, or `[nuclearity, relation, child, child, ...]`.

        Nuclearity is NS, SN or NN (of two or more children), as in GUM. Other nodes have a letter a child, as in SNS,
        and a list of relations, one a child.
        """
        done: dict[tuple[int, int], list | int] = {}
        for node in reversed(self.nodes):
            nuclearity, relation = node.nuclearity, node.relation
            if "S" not in nuclearity and len(set(node.relations)) == 1:
                nuclearity = "NN"
            elif len(nuclearity) > 2 or "S" not in nuclearity:
                relation = list(node.relations)
            children = [start if start == end else done.pop((start, end)) for start, end in node.children]
            done[node.start, node.end] = [nuclearity, relation, *children]
        return done[0, self.size - 1] if self.nodes else 0

    @classmethod
    def from_nested(cls, nested: list | int) -> "Tree":
        """The tree of what `nested` writes; EDUs are numbered from 0 in the order of the text.

        Raises:
            TreeError: if it is not of that form, or EDUs are missing, doubled or out of order.
        """
        leaves, opened = 0, []  # of each node that is being read: its head, its children's starts, what is left
        nodes, pending = [], [nested]
        while pending:
            item = pending.pop()
            if isinstance(item, _Close):
                nodes.append(_node_of(item.head, tuple(opened.pop()), leaves - 1))
                continue
            if opened:
                opened[-1].append(leaves)
            if isinstance(item, list) and len(item) >= 4:
                opened.append([])
                pending.append(_Close(item[:2]))
                pending.extend(reversed(item[2:]))
            elif isinstance(item, int) and not isinstance(item, bool):
                if item != leaves:
                    raise TreeError(f"EDU {item} where EDU {leaves} should be")
                leaves += 1
            else:
                raise TreeError(f"EDU {leaves}: {str(item)[:60]!r} is neither an EDU nor [nuclearity, relation, ...]")
        return cls(leaves, tuple(nodes))


class _Close(NamedTuple):
    """Marks the end of a node on the stack of `from_nested`."""

    head: list


def _check_node(node: Node) -> None:
    where = f"the node over EDUs {node.start} to {node.end}"
    if len(node.starts) < 2:
        raise TreeError(f"{where} has one child")
    if not len(node.starts) == len(node.nuclearity) == len(node.relations):
        raise TreeError(f"{where} has {len(node.starts)} children, but {node.nuclearity!r} and {node.relations}")
    if "N" not in node.nuclearity or set(node.nuclearity) - {"N", "S"}:
        raise TreeError(f"{where} has nuclearity {node.nuclearity!r}: N and S with at least one N are possible")
    if node.nuclearity.count("N") == 1 and node.relations[node.nuclearity.index("N")] != SPAN:
        raise TreeError(f"{where}: the relation of a single nucleus is `{SPAN}`, not {node.relations}")
    bounds = (*node.starts, node.end + 1)
    if any(left >= right for left, right in pairwise(bounds)):
        raise TreeError(f"{where} has an empty child, or children out of order")


def _binarised(node: Node) -> list[Node]:
    """The nodes of two children that stand for one with more."""
    nuclei = [place for place, letter in enumerate(node.nuclearity) if letter == "N"]
    first, nodes = nuclei[0], []
    ends = [end for _, end in node.children]
    # a satellite between two nuclei belongs to the one before it
    for place, following in pairwise(nuclei):
        for satellite in range(place + 1, following):
            start, split = node.starts[place], node.starts[satellite] - 1
            nodes.append(mononuclear(start, split, ends[satellite], "NS", node.relations[satellite]))
    last = ends[nuclei[-1]]
    for place, following in reversed(list(pairwise(nuclei))):
        nodes.append(multinuclear((node.starts[place], node.starts[following]), last, node.relations[following]))
    for satellite in range(nuclei[-1] + 1, len(node.starts)):
        start, split = node.starts[first], node.starts[satellite] - 1
        nodes.append(mononuclear(start, split, ends[satellite], "NS", node.relations[satellite]))
    for satellite in reversed(range(first)):
        nodes.append(mononuclear(node.starts[satellite], ends[satellite], node.end, "SN", node.relations[satellite]))
    return nodes


def _node_of(head: list, starts: tuple[int, ...], end: int) -> Node:
    """The node of `[nuclearity, relation]` in nested form."""
    nuclearity, relation = head
    if isinstance(relation, list) and all(isinstance(name, str) for name in relation) and isinstance(nuclearity, str):
        return Node(starts, end, nuclearity, tuple(relation))
    if isinstance(relation, str) and nuclearity == "NN":
        return multinuclear(starts, end, relation)
    if isinstance(relation, str) and nuclearity in ("NS", "SN") and len(starts) == 2:
        return mononuclear(starts[0], starts[1] - 1, end, nuclearity, relation)
    raise TreeError(f"EDUs {starts[0]} to {end}: {nuclearity!r}, {relation!r} do not fit {len(starts)} children")
