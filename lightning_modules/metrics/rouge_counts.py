"""What ROUGE counts, on sequences of integers: shared n-grams and longest common subsequences.

Both are computed bit-parallel. A set of positions in the reference is one Python integer, so that a token of the
prediction costs a few machine words instead of a loop over the reference: for subsequences the column of the dynamic
programme is such a set (Crochemore et al. 2001; Hyyrö 2004), for n-grams the places where one ends.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple


class Counts(NamedTuple):
    """What a score is made of: units found in both texts, units of the prediction, units of the reference."""

    hits: int
    predicted: int
    reference: int


class Score(NamedTuple):
    """Precision, recall and their harmonic mean, each in [0, 1]."""

    precision: float
    recall: float
    fmeasure: float


def score_of(hits: int, predicted: int, reference: int) -> Score:
    """The score that counts make; 0 where nothing is shared."""
    if not hits:
        return Score(0.0, 0.0, 0.0)
    precision, recall = hits / predicted, hits / reference
    # Not 2 hits / (predicted + reference): to the last bit as `rouge-score`, or two equal references would be ranked
    # in another order there.
    return Score(precision, recall, 2 * precision * recall / (precision + recall))


class Positions(NamedTuple):
    """Where the tokens of a text stand, as bit masks; one bit is left free behind each sentence.

    Attributes:
        masks: each token to its positions.
        fields: each sentence's positions. Additions carry into the free bit behind it, not into the next sentence.
        ends: the last position of each sentence.
    """

    masks: dict[int, int]
    fields: list[int]
    ends: int


def positions(sentences: Iterable[Sequence[int]]) -> Positions:
    """The positions of a text's tokens; empty sentences take no place."""
    masks: dict[int, int] = {}
    fields, ends = [], 0
    bit = 1
    for sentence in filter(None, sentences):
        start = bit
        for token in sentence:
            if token in masks:
                masks[token] |= bit
            else:
                masks[token] = bit
            bit += bit
        fields.append(bit - start)
        ends |= bit >> 1
        bit += bit
    return Positions(masks, fields, ends)


def places(tokens: Iterable[int]) -> tuple[dict[int, int], int]:
    """Each token to the mask of its positions, and the mask of all positions."""
    masks: dict[int, int] = {}
    bit = 1
    for token in tokens:
        if token in masks:
            masks[token] |= bit
        else:
            masks[token] = bit
        bit += bit
    return masks, bit - 1


def lcs_length(tokens: Iterable[int], masks: dict[int, int], full: int) -> int:
    """Length of the longest common subsequence of some tokens and those whose `places` are given.

    Bit i of `column` is 0 where the length grows at position i; the zeros are the length.
    """
    column = full
    for mask in filter(None, map(masks.get, tokens)):
        met = column & mask
        column = (column + met) | (column - met)  # bits above `full` are carries, dropped at the end
    return full.bit_count() - (column & full).bit_count()


def ngram_ends(found: Sequence[int | None], ends: int, n: int) -> Counter:
    """How often the prediction has each n-gram that the reference has too.

    Args:
        found: the positions in the reference of each token of the prediction; None or 0 where it has none.
        ends: `Positions.ends` of the reference; n-grams run over sentence ends.

    Returns:
        Counts by the mask of the positions where the n-gram ends in the reference: different n-grams end in
        different places.
    """
    grams = found
    for later in range(1, n):
        grams = [
            ((gram << 1) | ((gram & ends) << 2)) & mask if gram and mask else 0
            for gram, mask in zip(grams, found[later:])
        ]
    return Counter(filter(None, grams))


def clipped(often: Counter, within: int = -1) -> int:
    """Hits: each n-gram as often as the prediction has it, or the reference at the positions `within` if rarer."""
    hits = 0
    for mask, times in often.items():
        if here := mask & within:
            hits += 1 if times == 1 else min(times, here.bit_count())
    return hits


def union_lcs(found: Iterable[Sequence[int | None]], fields: Sequence[int]) -> int:
    """Union over the prediction's sentences of their longest common subsequences with each reference sentence.

    Of several longest subsequences it takes the one that ROUGE-1.5.5 and `rouge-score` mark (`_mark`).

    Args:
        found: for each sentence of the prediction, the positions in the reference of each of its tokens.
        fields: `Positions.fields` of the reference.

    Returns:
        The mask of the reference's positions in the union.
    """
    union, full = 0, sum(fields)
    for masks in found:
        column, columns, matched = full, [], 0
        for mask in filter(None, masks):
            met = column & mask
            column = ((column + met) | (column - met)) & full
            columns.append(column)
            matched |= mask
        stops = None
        for field in fields:
            here = matched & field
            # Where the length is the number of positions that match at all, every longest subsequence has them all.
            if here and (field & ~column).bit_count() < here.bit_count():
                stops = stops or _stops(masks, columns)
                here = _mark(stops, field)
            union |= here
    return union


def _stops(masks: Sequence[int | None], columns: list[int]) -> list[tuple[int, int]]:
    """Of each token that the reference has, last first: its matches, and the positions where walking back stops.

    Tokens that the reference lacks leave the column as it was, but walking back over them leads down to where the
    length grows: in the column before them a match alone is no longer met.
    """
    stops, jumped = [], False
    column = iter(reversed(columns))
    for mask in reversed(masks):
        if mask:
            grows = ~next(column)
            stops.append((mask, grows if jumped else mask | grows))
        jumped = not mask
    return stops


def _mark(stops: list[tuple[int, int]], field: int) -> int:
    """Positions of one longest common subsequence in one reference sentence, as a bit mask.

    From the end of both sentences the dynamic programme is walked back: over a match when there is one; else in the
    prediction where the length grows at this position of the reference; else in the reference. In a column that
    is: go to the highest position left that matches or grows.
    """
    left, chosen = field, 0
    for mask, stop in stops:
        candidates = stop & left
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
    tokens, others = list(chain.from_iterable(prediction)), list(chain.from_iterable(reference))
    sizes = len(tokens), len(others)
    if all(variant == "rougeL" for variant in variants):
        return {variant: Counts(lcs_length(tokens, *places(others)), *sizes) for variant in variants}
    masks, fields, ends = positions(reference)
    by_sentence = [list(map(masks.get, sentence)) for sentence in prediction]
    found = list(chain.from_iterable(by_sentence))
    often = ngram_ends(found, ends, 1)
    counts = {}
    for variant in variants:
        if variant == "rougeL":
            counts[variant] = Counts(lcs_length(tokens, *places(others)), *sizes)
        elif variant == "rougeLsum":
            union = union_lcs(by_sentence, fields)
            counts[variant] = Counts(clipped(often, union), *sizes)
        else:
            n = int(variant.removeprefix("rouge"))
            hits = clipped(often if n == 1 else ngram_ends(found, ends, n))
            counts[variant] = Counts(hits, *(max(size - n + 1, 0) for size in sizes))
    return counts
