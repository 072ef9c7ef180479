"""Texts that are nearly the same, found by MinHash, so that no split holds a copy of what another one holds."""

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from datasketch import LeanMinHash, MinHash, MinHashLSH

from datamodules.corpora.parallel import mapper

_WORDS = 5
_PERMUTATIONS = 128


def shingles(text: str) -> set[str]:
    """The word 5-grams of a text, case and punctuation aside; the whole text if it is shorter."""
    words = re.findall(r"\w+", text.lower())
    return {" ".join(words[i : i + _WORDS]) for i in range(max(1, len(words) - _WORDS + 1))}


def clusters(
    texts: Sequence[str], same: Iterable[Sequence[Hashable]] = (), threshold: float = 0.5, num_proc: int = 1
) -> list[list[int]]:
    """Groups texts of which each is a near-copy of another in its group.

    Args:
        texts: what is compared, by the Jaccard similarity of their shingles as MinHash estimates it.
        same: more reasons to be in one group: sequences of a key for each text, equal keys go together.
        threshold: the similarity from which a text is a near-copy.

    Returns:
        The groups as ascending indices, ordered by their first; a text like no other is a group of its own.
    """
    parent = list(range(len(texts)))
    for pair in _similar(texts, threshold, num_proc):
        _join(parent, *pair)
    for keys in same:
        first: dict[Hashable, int] = {}
        for index, key in enumerate(keys):
            _join(parent, first.setdefault(key, index), index)
    groups = defaultdict(list)
    for index in range(len(texts)):
        groups[_root(parent, index)].append(index)
    return list(groups.values())


def _similar(texts: Sequence[str], threshold: float, num_proc: int) -> Iterable[tuple[int, int]]:
    """Pairs whose signatures agree in at least `threshold` of their places."""
    with mapper(num_proc, chunksize=256) as mapped:
        signatures = list(mapped(_signature, texts))
    index = MinHashLSH(threshold, _PERMUTATIONS)
    for number, signature in enumerate(signatures):
        for other in index.query(signature):
            if signature.jaccard(signatures[other]) >= threshold:
                yield other, number
        index.insert(number, signature)


def _signature(text: str) -> LeanMinHash:
    signature = MinHash(_PERMUTATIONS)
    signature.update_batch([shingle.encode() for shingle in shingles(text)])
    return LeanMinHash(signature)


def _root(parent: list[int], index: int) -> int:
    while parent[index] != index:
        parent[index] = index = parent[parent[index]]
    return index


def _join(parent: list[int], one: int, other: int) -> None:
    """Puts two groups together, under the root that comes first."""
    low, high = sorted((_root(parent, one), _root(parent, other)))
    parent[high] = low
