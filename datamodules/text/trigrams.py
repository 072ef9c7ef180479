"""Which sentences repeat each other."""

from collections.abc import Sequence
from itertools import combinations


def sharing(words: Sequence[Sequence[str]], size: int = 3) -> list[tuple[int, int]]:
    """Pairs (i < j) of sentences, given as words, that have an n-gram in common."""
    places: dict[tuple[str, ...], set[int]] = {}
    for number, sentence in enumerate(words):
        for at in range(len(sentence) - size + 1):
            places.setdefault(tuple(sentence[at : at + size]), set()).add(number)
    return sorted({pair for where in places.values() if len(where) > 1 for pair in combinations(sorted(where), 2)})
