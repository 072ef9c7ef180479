"""What ROUGE counts, on sequences of integers: shared n-grams and longest common subsequences.

The subsequences are computed bit-parallel (Crochemore et al. 2001; Hyyrö 2004): one Python integer holds a whole
column of the dynamic programme, so a token costs a few machine words instead of a loop over the other text.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class Counts(NamedTuple):
    """What a score is made of: units found in both texts, units of the prediction, units of the reference."""

    hits: int
    predicted: int
    reference: int


def shared(one: Counter, other: Counter) -> int:
    """Size of the intersection of two multisets, sum_x min(one_x, other_x)."""
    common = one.keys() & other.keys()
    return sum(map(min, map(one.__getitem__, common), map(other.__getitem__, common)))


def ngrams(tokens: Sequence[int], n: int) -> Counter:
    """How often each n-gram occurs."""
    return Counter(tokens) if n == 1 else Counter(zip(*(tokens[start:] for start in range(n))))


def positions(tokens: Sequence[int]) -> dict[int, int]:
    """Each token to the bit mask of its positions."""
    masks: dict[int, int] = {}
    bit = 1
    for token in tokens:
        masks[token] = masks.get(token, 0) | bit
        bit <<= 1
    return masks


def lcs_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the longest common subsequence.

    Bit i of `column` is 0 where the length grows at position i of `other`; the zeros are the length.
    """
    masks = positions(other)
    column = full = (1 << len(other)) - 1
    for token in one:
        if token in masks:
            met = column & masks[token]
            column = (column + met) | (column - met)  # bits above `full` are carries, dropped at the end
    return len(other) - (column & full).bit_count()


def lcs_positions(tokens: Sequence[int], masks: dict[int, int], size: int) -> int:
    """Positions of one longest common subsequence in a reference sentence, as a bit mask.

    Of the longest subsequences it takes the one that ROUGE-1.5.5 and `rouge-score` mark. Going back from the end
    of both, they take a match when there is one, step back in `tokens` where the table's length grows at this
    position of the reference, and step back in the reference otherwise. In a column that is: go to the highest
    position left that matches or grows.

    Args:
        tokens: a sentence of the prediction.
        masks: `positions` of the reference sentence.
        size: its length.
    """
    column = full = (1 << size) - 1
    columns = []
    for token in tokens:
        mask = masks.get(token, 0)
        if mask:
            met = column & mask
            column = ((column + met) | (column - met)) & full
        columns.append((mask, mask | (column ^ full)))
    left, chosen = full, 0
    for mask, matches_or_grows in reversed(columns):
        candidates = matches_or_grows & left
        if not candidates:
            break
        highest = 1 << (candidates.bit_length() - 1)
        if mask & highest:
            chosen |= highest
            left = highest - 1
        else:
            left = 2 * highest - 1
    return chosen


def union_lcs_hits(prediction: Sequence[Sequence[int]], reference: Sequence[Sequence[int]]) -> int:
    """Hits of ROUGE-Lsum (Lin 2004, section 3.2) between two lists of sentences.

    For each reference sentence, the union over the prediction's sentences of their longest common subsequences
    with it. As in ROUGE-1.5.5 a token counts no more often than it occurs in the prediction.
    """
    found: Counter = Counter()
    for sentence in reference:
        masks = positions(sentence)
        union = 0
        for tokens in prediction:
            if not masks.keys().isdisjoint(tokens):
                union |= lcs_positions(tokens, masks, len(sentence))
        found.update(token for index, token in enumerate(sentence) if union >> index & 1)
    return shared(found, Counter(token for tokens in prediction for token in tokens))
