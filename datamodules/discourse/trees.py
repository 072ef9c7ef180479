"""RST trees over the EDUs of a document: binary or n-ary, stored as a flat list of nodes.

Each node has the first EDU of each child. All algorithms are loops without recursion, so that trees can be deep.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import NamedTuple, Self

SPAN = "span"  # relation of the only nucleus of a node, whose satellites have the actual relations
_END = object()  # marks the end of a node on the stack of `Tree.from_nested`


class TreeError(ValueError):
    """Raised for an invalid RST tree; the message has the EDUs of the problem."""


class Span(NamedTuple):
    """An internal node of a binary tree."""

    start: int  # first EDU
    split: int  # last EDU of the left child; the right one is `split + 1` to `end`
    end: int  # last EDU, inclusive
    nuclearity: str  # `NS`, `SN` or `NN`
    relation: str  # relation of the satellite, or of both nuclei of `NN`


class Node(NamedTuple):
    """An internal node of any tree."""

    starts: tuple[int, ...]  # first EDU of each child, in order; at least two
    end: int  # last EDU of the node, inclusive
    nuclearity: str  # one letter per child, `N` (nucleus) or `S` (satellite); at least one `N`
    # one per child: the relation of a satellite, the relation shared by several nuclei, or `span` for a single nucleus
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
        """Relation of the first satellite, or of the first nucleus if there is none."""
        return self.relations[self.nuclearity.find("S") if "S" in self.nuclearity else 0]

    @classmethod
    def of(cls, starts: tuple[int, ...], end: int, nuclearity: str, relation: str) -> Self:
        """Return a node whose satellite has `relation`; without a satellite, it is the relation of all nuclei."""
        nucleus_relation = SPAN if "S" in nuclearity else relation
        relations = tuple(nucleus_relation if letter == "N" else relation for letter in nuclearity)
        return cls(starts, end, nuclearity, relations)


@dataclass(frozen=True)
class Tree:
    """An RST tree over EDUs 0 to `size - 1`; a tree of one EDU has no nodes.

    Raises:
        TreeError: if the nodes are not a tree over these EDUs.
    """

    size: int  # number of EDUs
    nodes: tuple[Node, ...] = ()  # internal nodes; sorted to pre-order on construction

    def __post_init__(self) -> None:
        if self.size < 1:
            raise TreeError("a tree needs at least one EDU")
        pre_order = sorted(self.nodes, key=lambda node: (node.start, -node.end))  # a parent before its children
        object.__setattr__(self, "nodes", tuple(pre_order))  # since the dataclass is frozen
        for node in self.nodes:
            _check_node(node)
        self._check_nesting()

    def _check_nesting(self) -> None:
        """Check that every child with more than one EDU is a node, and that there are no other nodes."""
        expected = [(0, self.size - 1)]  # stack of (first, last) EDUs; the top is the next constituent in pre-order
        nodes = iter(self.nodes)  # in pre-order
        while expected:
            start, end = expected.pop()
            if start == end:  # a leaf has no node
                continue
            node = next(nodes, None)
            if node is None or (node.start, node.end) != (start, end):
                instead = "" if node is None else f", but one over EDUs {node.start} to {node.end}"
                raise TreeError(f"no node covers EDUs {start} to {end}{instead}")
            expected.extend(reversed(node.children))  # the first child is popped first
        extra = next(nodes, None)  # every constituent has its node by now
        if extra is not None:
            raise TreeError(f"the node over EDUs {extra.start} to {extra.end} is in the tree twice or outside of it")

    @cached_property
    def _by_span(self) -> dict[tuple[int, int], Node]:
        return {(node.start, node.end): node for node in self.nodes}

    def node(self, start: int, end: int) -> Node | None:
        """Return the node from EDU `start` to `end`; None for a leaf or if there is no such constituent."""
        return self._by_span.get((start, end))

    def spans(self) -> list[Span]:
        """Return the nodes of a binary tree in pre-order, each with the last EDU of its left child as `split`.

        Raises:
            TreeError: if a node has more than two children; call `binary()` first.
        """
        spans = []
        for node in self.nodes:
            if len(node.starts) != 2:
                problem = f"the node over EDUs {node.start} to {node.end} has {len(node.starts)} children"
                raise TreeError(f"{problem}; call binary() first")
            spans.append(Span(node.start, node.starts[1] - 1, node.end, node.nuclearity, node.relation))
        return spans

    @classmethod
    def from_spans(cls, spans: Iterable[Span], size: int) -> "Tree":
        """Build the binary tree over `size` EDUs from its nodes (see `Span`) in any order, or raise a TreeError."""
        nodes = []
        for start, split, end, nuclearity, relation in spans:  # `split` is the last EDU of the left child
            nodes.append(Node.of((start, split + 1), end, nuclearity, relation))
        return cls(size, tuple(nodes))

    def binary(self) -> "Tree":
        """Return the tree with two children at each node.

        Several nuclei branch to the right, with the same relation: A B C becomes A (B C), as usual for RST-DT and in
        the binary trees of GUM. Several satellites of a nucleus are attached from the nearest to the farthest, first
        those after the nucleus, then those before it. With satellites S and T, S N T becomes S (N T), N S T (N S) T.
        """
        nodes = ([node] if len(node.starts) == 2 else _binary_nodes(node) for node in self.nodes)
        return Tree(self.size, tuple(chain.from_iterable(nodes)))

    def nested(self) -> list | int:
        """Return the tree as JSON: the number of an EDU, or `[nuclearity, relation, child, child, ...]`.

        Nuclearity is NS, SN or NN (two or more nuclei with the same relation), as in GUM. Other nodes have one letter
        per child, such as SNS, and a list with one relation per child. A tree of one EDU is 0.
        """
        subtrees: dict[tuple[int, int], list | int] = {}  # by first and last EDU
        for node in reversed(self.nodes):  # children before their parent
            nuclearity, relation = node.nuclearity, node.relation  # of the first satellite, or else first nucleus
            only_nuclei = "S" not in nuclearity
            if only_nuclei and len(set(node.relations)) == 1:
                nuclearity = "NN"
            elif only_nuclei or len(nuclearity) > 2:  # not NS or SN, for which one relation is enough
                relation = list(node.relations)
            children = [start if start == end else subtrees.pop((start, end)) for start, end in node.children]
            subtrees[node.start, node.end] = [nuclearity, relation, *children]
        return subtrees[0, self.size - 1] if self.nodes else 0

    @classmethod
    def from_nested(cls, nested: list | int) -> "Tree":
        """Read a tree in the form that `Tree.nested` returns; EDUs are numbered from 0 in the order of the text.

        Raises:
            TreeError: if the form is invalid, or EDUs are missing, duplicate or out of order.
        """
        next_edu = 0  # number of EDUs that have been read
        nodes: list[Node] = []
        pending: list = [nested]  # a stack instead of recursion, whose depth Python limits
        opened: list[tuple[list, list[int]]] = []  # per open node: [nuclearity, relation], first EDUs of its children
        while pending:
            item = pending.pop()
            if item is _END:  # the marker after the last child of the innermost open node
                label, starts = opened.pop()
                nodes.append(_node_of(label, tuple(starts), next_edu - 1))  # it ends with the EDU read last
                continue
            if opened:
                opened[-1][1].append(next_edu)  # the item is a child, and begins with this EDU
            if isinstance(item, list) and len(item) >= 4:  # nuclearity, relation and at least two children
                opened.append((item[:2], []))
                pending += [_END, *reversed(item[2:])]  # the first child is popped first, `_END` after the last
            elif isinstance(item, int) and not isinstance(item, bool):  # `true` of JSON is an int in Python
                if item != next_edu:
                    raise TreeError(f"EDU {item} where EDU {next_edu} should be")
                next_edu += 1
            else:
                problem = "neither an EDU nor [nuclearity, relation, child, child, ...]"
                raise TreeError(f"EDU {next_edu}: {str(item)[:60]!r} is {problem}")
        return cls(next_edu, tuple(nodes))


def _check_node(node: Node) -> None:
    """Raise TreeError if the number of children, the nuclearity and the relations of a node do not fit each other."""
    where = f"the node over EDUs {node.start} to {node.end}"
    if len(node.starts) < 2:
        raise TreeError(f"{where} has one child")
    if not len(node.starts) == len(node.nuclearity) == len(node.relations):
        raise TreeError(f"{where} has {len(node.starts)} children, but {node.nuclearity!r} and {node.relations}")
    if "N" not in node.nuclearity or set(node.nuclearity) - {"N", "S"}:
        raise TreeError(f"{where} has nuclearity {node.nuclearity!r}; it must be N and S with at least one N")
    spans = [letter for letter, name in zip(node.nuclearity, node.relations) if name == SPAN]
    if spans != (["N"] if node.nuclearity.count("N") == 1 else []):
        problem = f"`{SPAN}` is the relation of a single nucleus, and only of it"
        raise TreeError(f"{where}: {problem}, not {node.nuclearity} with {', '.join(node.relations)}")
    bounds = (*node.starts, node.end + 1)  # first EDU of each child, and the EDU after the last child
    if any(left >= right for left, right in pairwise(bounds)):
        raise TreeError(f"{where} has an empty child, or children out of order")


def _binary_nodes(node: Node) -> list[Node]:
    """Return the binary nodes that replace a node with more than two children, attached as `Tree.binary` says."""
    nuclei = [child for child, letter in enumerate(node.nuclearity) if letter == "N"]  # indices of children
    first_nucleus, last_nucleus = nuclei[0], nuclei[-1]
    starts, ends = node.starts, [end for _, end in node.children]  # first and last EDU of each child
    nodes: list[Node] = []  # in any order, as `Tree` sorts them

    def join(left: int, right: int, last: int, nuclearity: str) -> None:
        """Add a node whose two children begin with the children `left` and `right`, and which ends with `last`."""
        relation = node.relations[left if nuclearity == "SN" else right]
        nodes.append(Node.of((starts[left], starts[right]), ends[last], nuclearity, relation))

    for nucleus, following in pairwise(nuclei):
        for satellite in range(nucleus + 1, following):  # a satellite between two nuclei belongs to the first
            join(nucleus, satellite, satellite, "NS")
    for nucleus, following in reversed(list(pairwise(nuclei))):  # nuclei branch to the right: A (B C)
        join(nucleus, following, last_nucleus, "NN")
    for satellite in range(last_nucleus + 1, len(starts)):  # after all nuclei: attached to all of them
        join(first_nucleus, satellite, satellite, "NS")
    for satellite in reversed(range(first_nucleus)):  # before all nuclei, from the nearest to the farthest
        join(satellite, satellite + 1, len(starts) - 1, "SN")
    return nodes


def _node_of(label: list, starts: tuple[int, ...], end: int) -> Node:
    """Build a node from its label [nuclearity, relation or relations], the first EDUs of its children, its last EDU."""
    nuclearity, relation = label
    # a list has a relation for each child; `_check_node` tests whether it fits the nuclearity
    if isinstance(relation, list) and all(isinstance(name, str) for name in relation) and isinstance(nuclearity, str):
        return Node(starts, end, nuclearity, tuple(relation))
    if isinstance(relation, str) and nuclearity == "NN":
        return Node.of(starts, end, "N" * len(starts), relation)
    if isinstance(relation, str) and nuclearity in ("NS", "SN") and len(starts) == 2:
        return Node.of(starts, end, nuclearity, relation)
    raise TreeError(f"EDUs {starts[0]} to {end}: {nuclearity!r}, {relation!r} do not fit {len(starts)} children")
