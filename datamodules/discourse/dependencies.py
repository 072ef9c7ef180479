"""Conversion between RST trees and dependencies between EDUs."""

from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

from datamodules.discourse.trees import SPAN, Node, Tree, TreeError


class Dependencies(NamedTuple):
    """An RST tree as dependencies, with one value per EDU.

    The head of a node is that of its first nucleus; the heads of its other children depend on it. The depth
    distinguishes nodes with the same head, 0 for the innermost. The conversion is lossless for every tree in which all
    nuclei of a node have the same relation.

    Attributes:
        heads: index of the head of each EDU, -1 for the root.
        relations: relation to the head, `ROOT` for the root.
        nuclearity: `m` for a further nucleus, `s` for a satellite, `root` for the root.
        depths: order in which dependents are attached to a head; those of one node have the same depth.
    """

    heads: tuple[int, ...]
    relations: tuple[str, ...]
    nuclearity: tuple[str, ...]
    depths: tuple[int, ...]


def from_dependencies(dependencies: Dependencies) -> Tree:
    """Convert dependencies to a tree.

    Raises:
        TreeError: if there is no single root, or there is a cycle or crossing dependencies.
    """
    heads, relations, kinds, depths = dependencies
    if not len(heads) == len(relations) == len(kinds) == len(depths):
        lengths = ", ".join(str(len(column)) for column in dependencies)
        raise TreeError(f"heads, relations, nuclearity and depths have {lengths} values; each needs one per EDU")
    dependents = _dependents(heads)
    order = list(dependents[-1])
    for edu in order:
        order.extend(dependents[edu])
    if len(order) < len(heads):
        raise TreeError(f"EDU {min(set(range(len(heads))) - set(order))} depends on itself in a cycle")
    extents: dict[int, tuple[int, int]] = {}
    nodes = []
    for head in reversed(order):  # dependents before their head
        start = end = head
        for depth in sorted({depths[edu] for edu in dependents[head]}):
            group = [(*extents[edu], edu) for edu in dependents[head] if depths[edu] == depth]
            children = sorted([(start, end, head), *group])
            _check_contiguous(children)
            nodes.append(_node_of(children, head, relations, kinds))
            start, end = children[0][0], children[-1][1]
        extents[head] = start, end
    return Tree(len(heads), tuple(nodes))


def _dependents(heads: tuple[int, ...]) -> dict[int, list[int]]:
    """Return the dependents of each EDU; raise a TreeError if there is no single root or a head does not exist."""
    roots = [edu for edu, head in enumerate(heads) if head == -1]
    if len(roots) != 1:
        raise TreeError(f"{len(roots)} roots{': EDUs ' + ', '.join(map(str, roots)) if roots else ''}; a tree has one")
    dependents: dict[int, list[int]] = defaultdict(list)
    for edu, head in enumerate(heads):
        if not -1 <= head < len(heads):
            raise TreeError(f"EDU {edu} depends on EDU {head}, which does not exist")
        dependents[head].append(edu)
    return dependents


def _check_contiguous(children: list[tuple[int, int, int]]) -> None:
    for (_, end, first), (start, _, second) in pairwise(children):
        if start != end + 1:
            raise TreeError(f"EDUs {first} and {second} are attached next to each other, but are apart or cross")


def _node_of(children: list[tuple[int, int, int]], head: int, relations: tuple, kinds: tuple) -> Node:
    """Return the node over children (start, end, head) whose heads depend on `head`."""
    letters = "".join("N" if edu == head or kinds[edu] == "m" else "S" for *_, edu in children)
    shared = next((relations[edu] for *_, edu in children if edu != head and kinds[edu] == "m"), SPAN)
    names = tuple(shared if edu == head else relations[edu] for *_, edu in children)
    return Node(tuple(start for start, *_ in children), children[-1][1], letters, names)
