"""All binary trees over a few EDUs, written out: the oracle of charts and distributions."""

from functools import cache
from itertools import product


@cache
def trees(start: int, end: int) -> list[tuple]:
    """Every tree over start..end as a tuple of nodes (start, split, end), the root first."""
    if start == end:
        return [()]
    return [
        ((start, split, end), *left, *right)
        for split in range(start, end)
        for left, right in product(trees(start, split), trees(split + 1, end))
    ]


def labelled(nodes: tuple, classes: int):
    """Every way to give each node a class."""
    return product(range(classes), repeat=len(nodes))


def ancestor(nodes, a: int, b: int) -> int:
    """Index of the lowest common ancestor's node: the narrowest that holds both."""
    holding = [n for n, (start, _, end) in enumerate(nodes) if start <= min(a, b) and max(a, b) <= end]
    return min(holding, key=lambda n: nodes[n][2] - nodes[n][0])


def parent_is_nucleus(nodes, sides, a: int) -> bool:
    """Return whether leaf a is a nucleus of its own parent; `sides` has "NS", "SN" or "NN" for each node."""
    for (start, split, end), side in zip(nodes, sides):
        if start == split == a:
            return side[0] == "N"
        if split + 1 == end == a:
            return side[1] == "N"
    raise AssertionError(f"no parent of {a}")
