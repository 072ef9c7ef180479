"""What ROUGE counts, on sequences of integers: shared n-grams and longest common subsequences.

The subsequences are computed bit-parallel (Crochemore et al. 2001; Hyyrö 2004): one Python integer holds a whole
column of the dynamic programme, so that a token costs a few machine words instead of a loop over the other text.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class Counts(NamedTuple):
    """What a score is made of: units found in both texts, units of the prediction, units of the reference."""

    hits: int
    predicted: int
    reference: int


def ngram_hits(one: Sequence[int], other: Sequence[int], n: int) -> int:
    """Clipped overlap of n-grams: sum over n-grams of the lesser of their two frequencies."""
    ours, theirs = set(_ngrams(one, n)), set(_ngrams(other, n))
    common = ours & theirs
    if len(ours) == len(one) - n + 1 or len(theirs) == len(other) - n + 1:
        return len(common)  # one side repeats nothing
    often, also = (Counter(gram for gram in _ngrams(tokens, n) if gram in common) for tokens in (one, other))
    return sum(min(often[gram], also[gram]) for gram in common)


def _ngrams(tokens: Sequence[int], n: int) -> zip:
    return zip(*(tokens[start:] for start in range(n)))


def lcs_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the longest common subsequence.

    Bit i of `column` is 0 where the length grows at position i of `other`; the zeros are the length.
    """
    if len(one) < len(other):
        one, other = other, one
    masks, (full,) = positions([other])
    column = full
    for mask in filter(None, map(masks.get, one)):
        met = column & mask
        column = (column + met) | (column - met)  # bits above `full` are carries, dropped at the end
    return len(other) - (column & full).bit_count()


def positions(sentences: Sequence[Sequence[int]]) -> tuple[dict[int, int], list[int]]:
    """Where tokens stand in a text, as bit masks.

    Returns:
        Each token's positions, and each sentence's. One bit is left free above each sentence: additions carry
        into it and not into the next sentence.
    """
    masks: dict[int, int] = {}
    fields = []
    bit = 1
    for sentence in sentences:
        start = bit
        for token in sentence:
            masks[token] = masks.get(token, 0) | bit
            bit <<= 1
        fields.append(bit - start)
        bit <<= 1
    return masks, fields


def union_lcs(prediction: Sequence[Sequence[int]], masks: dict[int, int], fields: list[int]) -> int:
    """Union over the prediction's sentences of their longest common subsequences with each reference sentence.

    Of several longest subsequences it takes the one that ROUGE-1.5.5 and `rouge-score` mark: `_mark`.

    Args:
        prediction: its sentences.
        masks, fields: `positions` of the reference.

    Returns:
        The mask of the reference's positions in the union.
    """
    union, full = 0, sum(fields)
    for tokens in prediction:
        column, columns = full, []
        followed = False
        for mask in map(masks.get, tokens):
            if mask:
                met = column & mask
                column = ((column + met) | (column - met)) & full
                columns.append((mask, mask | ~column))
                followed = True
            elif followed:
                # Tokens that the reference lacks change no column, but stepping back over them leads down to where
                # the length grows: after this column a match alone is no longer met.
                columns[-1] = (columns[-1][0], ~column)
                followed = False
        columns.reverse()
        for field in fields:
            union |= _mark(columns, field)
    return union


def _mark(columns: list[tuple[int, int]], field: int) -> int:
    """Positions of one longest common subsequence in one reference sentence, as a bit mask.

    From the end of both sentences the dynamic programme is walked back: over a match when there is one; else in the
    prediction where the length grows at this position of the reference; else in the reference. In a column that
    is: go to the highest position left that matches or grows.

    Args:
        columns: last first, of each token its matches, and where it matches or the length grows.
        field: the sentence's positions.
    """
    left, chosen = field, 0
    for mask, stops in columns:
        candidates = stops & left
        if not candidates:
            break
        highest = 1 << (candidates.bit_length() - 1)
        if mask & highest:
            chosen |= highest
            left = (highest - 1) & field
        else:
            left = (2 * highest - 1) & field
    return chosen


def count(variants: Sequence[str], prediction: list[list[int]], reference: list[list[int]]) -> dict[str, Counts]:
    """Counts of each variant ("rouge1", ..., "rougeL", "rougeLsum") between two encoded texts.

    A hit of ROUGE-Lsum is a token of the union (`union_lcs`), but no token hits more often than it occurs in the
    prediction (Lin 2004, section 3.2, as ROUGE-1.5.5 does it).
    """
    tokens = prediction[0] if len(prediction) == 1 else [token for sentence in prediction for token in sentence]
    others = reference[0] if len(reference) == 1 else [token for sentence in reference for token in sentence]
    sizes = len(tokens), len(others)
    counts = {}
    if "rouge1" in variants or "rougeLsum" in variants:
        masks, fields = positions(reference)
        often = Counter(tokens)
        common = masks.keys() & often.keys()
    for variant in variants:
        if variant == "rouge1":
            counts[variant] = Counts(sum(min(often[t], masks[t].bit_count()) for t in common), *sizes)
        elif variant == "rougeLsum":
            union = union_lcs(prediction, masks, fields)
            counts[variant] = Counts(sum(min(often[t], (masks[t] & union).bit_count()) for t in common), *sizes)
        elif variant == "rougeL":
            counts[variant] = Counts(lcs_length(tokens, others), *sizes)
        else:
            n = int(variant.removeprefix("rouge"))
            counts[variant] = Counts(ngram_hits(tokens, others, n), *(max(size - n + 1, 0) for size in sizes))
    return counts
