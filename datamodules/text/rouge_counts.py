"""Counts of ROUGE on sequences of integers: shared n-grams and longest common subsequences.

Both are computed bit-parallel. A set of positions in the reference is one Python integer, so that a token of the
prediction costs a few machine words instead of a loop over the reference: for subsequences the column of the dynamic
programme is such a set (Crochemore et al. 2001; Hyyrö 2004), for n-grams the positions where one ends.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple


class Counts(NamedTuple):
    """Counts of a score: shared units, units of the prediction, units of the reference."""

    hits: int
    predicted: int
    reference: int


class Score(NamedTuple):
    """Precision, recall and their harmonic mean, each in [0, 1]."""

    precision: float
    recall: float
    fmeasure: float


def score_of(hits: int, predicted: int, reference: int) -> Score:
    """Return the score of counts; 0 if nothing is shared."""
    if not hits:
        return Score(0.0, 0.0, 0.0)
    precision, recall = hits / predicted, hits / reference
    # Not 2 hits / (predicted + reference): to the last bit as `rouge-score`, or two equal references would be ranked
    # in another order there.
    return Score(precision, recall, 2 * precision * recall / (precision + recall))


class Positions(NamedTuple):
    """Positions of the tokens of a text as bit masks, with a free bit after each sentence."""

    masks: dict[int, int]  # positions of each token
    # positions of each sentence. Additions carry into the free bit after it, not into the next sentence.
    fields: list[int]
    ends: int  # last position of each sentence


def positions(sentences: Iterable[Sequence[int]]) -> Positions:
    """Return the positions of the tokens of a text; empty sentences have no position."""
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


def position_masks(tokens: Iterable[int]) -> tuple[dict[int, int], int]:
    """Return the mask of positions of each token, and the mask of all positions."""
    masks, fields, _ = positions([list(tokens)])
    return masks, sum(fields)


def lcs_length(tokens: Iterable[int], masks: dict[int, int], full: int) -> int:
    """Return the length of the longest common subsequence of tokens and a text given by its `position_masks`.

    Bit-parallel dynamic programme (Hyyrö 2004): bit i of `column` is 0 if the length increases at position i, so that
    the number of zeros is the length.
    """
    column = full
    for mask in filter(None, map(masks.get, tokens)):
        matched = column & mask
        column = (column + matched) | (column - matched)  # bits above `full` are carries, dropped at the end
    return full.bit_count() - (column & full).bit_count()


def ngram_ends(positions: Sequence[int | None], ends: int, n: int) -> Counter:
    """Count the occurrences in the prediction of each n-gram of the reference.

    The mask of the end positions of an n-gram in the reference identifies it. N-grams cross ends of sentences.

    Args:
        positions: positions in the reference of each token of the prediction; None or 0 for none.
        ends: `Positions.ends` of the reference.
    """
    grams = positions
    for later in range(1, n):
        grams = [
            ((gram << 1) | ((gram & ends) << 2)) & mask if gram and mask else 0
            for gram, mask in zip(grams, positions[later:])
        ]
    return Counter(filter(None, grams))


def clipped(often: Counter, within: int = -1) -> int:
    """Return the clipped number of matches, sum over n-grams of min(count in prediction, count in reference).

    In the reference, only the positions `within` (a bit mask) are counted.
    """
    hits = 0
    for mask, times in often.items():
        if matches := mask & within:
            hits += 1 if times == 1 else min(times, matches.bit_count())
    return hits


def union_lcs(positions: Iterable[Sequence[int | None]], fields: Sequence[int]) -> int:
    """Return the mask of the union of the longest common subsequences of every predicted and every reference sentence.

    All sentences of the reference are computed at once, in one bit vector (`lcs_length`) with a field for each. Of
    several longest subsequences it uses the one of ROUGE-1.5.5 and `rouge-score` (`_mark`).

    Args:
        positions: for each sentence of the prediction, a bit mask for each token of its positions in the reference;
            None for a token that is not there.
        fields: `Positions.fields` of the reference.
    """
    union, full = 0, sum(fields)
    for masks in positions:
        # One column of the dynamic programme for each token; `matched` collects all positions that match any token.
        column, columns, matched = full, [], 0
        for mask in filter(None, masks):
            common = column & mask
            column = ((column + common) | (column - common)) & full
            columns.append(column)
            matched |= mask
        stops = None  # input of the backtrace, computed once for a sentence that needs it
        for field in fields:
            matching = matched & field
            # The length of the subsequence is the number of zero bits in `column`. If it equals the number of matching
            # positions, the subsequence has all of them; otherwise a backtrace finds which ones.
            if matching and (field & ~column).bit_count() < matching.bit_count():
                stops = stops or _stops(masks, columns)
                matching = _mark(stops, field)
            union |= matching
    return union


def _stops(masks: Sequence[int | None], columns: list[int]) -> list[tuple[int, int]]:
    """Return matches and stop positions of the backtrace for each token that is in the reference, last first."""
    # The backtrace over tokens that are not in the reference moves to where the length increases, so that a match alone
    # does not stop it in the column before them.
    stops, jumped = [], False
    column = iter(reversed(columns))
    for mask in reversed(masks):
        if mask:
            grows = ~next(column)
            stops.append((mask, grows if jumped else mask | grows))
        jumped = not mask
    return stops


def _mark(stops: list[tuple[int, int]], field: int) -> int:
    """Return the positions of one longest common subsequence in one reference sentence, as a bit mask."""
    # Backtrace of the dynamic programme from the end of both sentences, in a column to the highest remaining position
    # that matches or where the length increases.
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
    """Return the counts of each variant ("rouge1", ..., "rougeL", "rougeLsum") for two encoded texts.

    A hit of ROUGE-Lsum is a token of the union (`union_lcs`), but no token hits more often than it occurs in the
    prediction (Lin 2004, section 3.2, as ROUGE-1.5.5 does it).
    """
    tokens, reference_tokens = list(chain.from_iterable(prediction)), list(chain.from_iterable(reference))
    sizes = len(tokens), len(reference_tokens)
    if all(variant == "rougeL" for variant in variants):
        return {variant: Counts(lcs_length(tokens, *position_masks(reference_tokens)), *sizes) for variant in variants}
    masks, fields, ends = positions(reference)
    by_sentence = [list(map(masks.get, sentence)) for sentence in prediction]
    token_masks = list(chain.from_iterable(by_sentence))
    often = ngram_ends(token_masks, ends, 1)
    counts = {}
    for variant in variants:
        if variant == "rougeL":
            counts[variant] = Counts(lcs_length(tokens, *position_masks(reference_tokens)), *sizes)
        elif variant == "rougeLsum":
            union = union_lcs(by_sentence, fields)
            counts[variant] = Counts(clipped(often, union), *sizes)
        else:
            n = int(variant.removeprefix("rouge"))
            hits = clipped(often if n == 1 else ngram_ends(token_masks, ends, n))
            counts[variant] = Counts(hits, *(max(size - n + 1, 0) for size in sizes))
    return counts
