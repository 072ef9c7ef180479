"""All binary trees over a few EDUs, written out: the oracle of charts and distributions."""

from functools import cache
from itertools import permutations, product

import torch

SIDES, RELATION = ["NS", "SN", "NN"], [0, 1, 0]  # of the three classes of nodes


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


def distribution(weighted, size: int, rows: str) -> torch.Tensor:
    """p(a, b, l) summed over labelled trees (probability, nodes, classes) of EDUs, [E, E, 2]."""
    p = torch.zeros(size, size, 2, dtype=torch.double)
    for chance, nodes, classes in weighted:
        sides = [SIDES[c] for c in classes]
        for a, b in permutations(range(size), 2):
            top = ancestor(nodes, a, b)
            nucleus = sides[top][0 if a < b else 1] == "N"
            if nucleus and (rows == "side" or parent_is_nucleus(nodes, sides, a)):
                p[a, b, RELATION[classes[top]]] += chance
    return p
