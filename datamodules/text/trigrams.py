"""Sentences that share trigrams."""

from collections.abc import Sequence
from itertools import combinations


def pairs_with_common_ngram(words: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """Return pairs (i < j) of sentences, as lists of words, that share a trigram."""
    sentences_with: dict[tuple[str, ...], set[int]] = {}
    for number, sentence in enumerate(words):
        for start in range(len(sentence) - 2):
            sentences_with.setdefault(tuple(sentence[start : start + 3]), set()).add(number)
    pairs: set[tuple[int, int]] = set()
    for numbers in sentences_with.values():
        pairs.update(combinations(sorted(numbers), 2))
    return sorted(pairs)
