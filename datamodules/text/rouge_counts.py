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
    """Numbers of units (n-grams or words): shared ones (hits), those of the prediction, those of the reference."""

    hits: int
    predicted: int
    reference: int


class Score(NamedTuple):
    """Precision, recall and their harmonic mean, each in [0, 1]."""

    precision: float
    recall: float
    fmeasure: float


def score_of(hits: int, predicted: int, reference: int) -> Score:
    """Return the score of the numbers of shared, predicted and reference units (`Counts`); 0 if nothing is shared."""
    if not hits:
        return Score(0.0, 0.0, 0.0)
    precision, recall = hits / predicted, hits / reference
    # Not 2 hits / (predicted + reference): its last bit may differ from `rouge-score`, which would break ties between
    # references, so that another one could be the best.
    return Score(precision, recall, 2 * precision * recall / (precision + recall))


class Positions(NamedTuple):
    """Positions of the tokens of a text as bit masks: bit i is position i; a bit after each sentence is never set."""

    masks: dict[int, int]  # token -> its positions
    # all positions of each sentence; additions carry into the free bit after it, not into the next sentence
    fields: list[int]
    ends: int  # the last positions of all sentences


def positions(sentences: Iterable[Sequence[int]]) -> Positions:
    """Return the positions of the tokens (integers of words) of a text; empty sentences have no position."""
    masks: dict[int, int] = {}  # token -> bit mask of its positions
    fields: list[int] = []  # all positions of each sentence, as a bit mask
    ends = 0  # bit mask of the last position of each sentence
    bit = 1  # bit mask of the current position
    for sentence in filter(None, sentences):
        first_bit = bit
        for token in sentence:
            masks[token] = masks.get(token, 0) | bit
            bit += bit  # the next position
        fields.append(bit - first_bit)  # all bits from the first to the last position
        ends |= bit >> 1  # the last position of the sentence
        bit += bit  # leaves a free bit, into which additions in `union_lcs` carry
    return Positions(masks, fields, ends)


def lcs_length(tokens: Iterable[int], other: Iterable[int]) -> int:
    """Return the length of the longest common subsequence of two texts, each as integers of words.

    Bit-parallel dynamic program (Hyyrö 2004): bit i of `column` is 0 if the length for the tokens so far increases at
    position i of the other text, so that the number of zeros is the length. A token moves each 0 down to its lowest
    match in the run of ones below, if any. Above the highest 0, its lowest match becomes a new 0, and the length grows
    by 1.
    """
    masks, fields, _ = positions([list(other)])  # bit masks: positions of each token, all positions
    column = full = sum(fields)  # one field, or none without tokens
    for mask in filter(None, map(masks.get, tokens)):
        matched = column & mask
        column = (column + matched) | (column - matched)  # bits above `full` are carries, which are dropped at the end
    return full.bit_count() - (column & full).bit_count()


def ngram_ends(positions: Sequence[int | None], ends: int, n: int) -> Counter:
    """Count the occurrences in the prediction of each n-gram of the reference.

    N-grams cross ends of sentences.

    Args:
        positions: for each token of the prediction, bit mask of its positions in the reference; None or 0 for none.
        ends: bit mask of the last positions of the sentences of the reference (`Positions.ends`).

    Returns:
        Counts of n-grams. The key of each is the bit mask of all positions where it ends in the reference.
    """
    grams = positions  # for the n-gram that begins at each predicted token, positions in the reference where it ends
    for offset in range(1, n):  # extend each n-gram by the token `offset` after its first one
        grams = [
            # the position after each end; after a sentence it skips a bit that is never set (see `Positions`)
            ((gram << 1) | ((gram & ends) << 2)) & token_mask if gram and token_mask else 0
            for gram, token_mask in zip(grams, positions[offset:])
        ]
    return Counter(filter(None, grams))


def clipped(counts: Counter, within: int = -1) -> int:
    """Return the clipped number of matches, sum over n-grams of min(count in prediction, count in reference).

    Args:
        counts: from `ngram_ends`: count in the prediction of each n-gram, a bit mask of its positions in the reference.
        within: positions in the reference that count, such as those of `union_lcs`; all by default (-1 has all bits).
    """
    hits = 0
    for mask, times in counts.items():
        if matches := mask & within:
            hits += 1 if times == 1 else min(times, matches.bit_count())  # a bit per occurrence; `times` is mostly 1
    return hits


def union_lcs(positions: Iterable[Sequence[int | None]], fields: Sequence[int]) -> int:
    """Return the union of the positions in the reference of longest common subsequences, as a bit mask.

    There is one for each pair of a reference and a predicted sentence; of several longest ones, the same as in
    ROUGE-1.5.5 and `rouge-score` (`_backtrace`). One bit vector has a field for each reference sentence (`lcs_length`).

    Args:
        positions: for each sentence of the prediction, a bit mask for each token of its positions in the reference;
            None for a token that is not there.
        fields: bit masks of all positions of each sentence of the reference (`Positions.fields`).
    """
    union = 0
    full = sum(fields)  # all positions
    for masks in positions:
        # One column of the dynamic program for each token of the prediction, see `lcs_length`.
        column = full
        columns = []
        matched = 0  # positions that match any token
        for mask in filter(None, masks):
            common = column & mask
            column = ((column + common) | (column - common)) & full
            columns.append(column)
            matched |= mask
        stops = None  # where the backtrace stops, computed once for each predicted sentence that needs it
        for field in fields:
            subsequence = matched & field
            # The length of the subsequence is the number of zero bits of the field in `column`. If it equals the number
            # of matching positions, the subsequence has all of them; otherwise a backtrace finds which ones.
            if subsequence and (field & ~column).bit_count() < subsequence.bit_count():
                stops = stops or _stops(masks, columns)
                subsequence = _backtrace(stops, field)
            union |= subsequence
    return union


def _stops(masks: Sequence[int | None], columns: list[int]) -> list[tuple[int, int]]:
    """Return (matches, stops), two masks of positions, for each predicted token in the reference, from the last one.

    `_backtrace` stops where the token matches, or where the length increases, a 0 in its column. If the next predicted
    token is not in the reference, only the latter counts, since ROUGE-1.5.5 goes down to an increase at that token.
    """
    stops = []
    skipped_token = False  # whether the token after the current one is not in the reference
    reversed_columns = iter(reversed(columns))  # one for each token that is in the reference
    for matches in reversed(masks):
        if matches:
            increases = ~next(reversed_columns)  # a zero bit in a column marks an increase of the length
            stops.append((matches, increases if skipped_token else matches | increases))
        skipped_token = not matches
    return stops


def _backtrace(stops: list[tuple[int, int]], field: int) -> int:
    """Return one longest common subsequence with a reference sentence, as a bit mask of positions in the reference.

    `stops` has (matches, positions to stop at) from the last predicted token on, see `_stops`; `field` is the sentence.
    """
    remaining, subsequence = field, 0
    for matches, stop_positions in stops:
        candidates = stop_positions & remaining
        if not candidates:
            break
        highest = 1 << (candidates.bit_length() - 1)  # the last position to stop at
        if matches & highest:
            subsequence |= highest
            remaining = (highest - 1) & field  # positions before it
        else:  # the length increases here by an earlier token: look for its match up to this position
            remaining = (2 * highest - 1) & field
    return subsequence


def count(variants: Sequence[str], prediction: list[list[int]], reference: list[list[int]]) -> dict[str, Counts]:
    """Return the counts of each variant ("rouge1", ..., "rougeL", "rougeLsum") for two texts, as sentences of integers.

    A hit of ROUGE-Lsum is a position of the union (`union_lcs`), but no word has more hits than it has occurrences in
    the prediction (Lin 2004, section 3.2, as ROUGE-1.5.5 does it).
    """
    tokens = list(chain.from_iterable(prediction))
    reference_tokens = list(chain.from_iterable(reference))
    sizes = len(tokens), len(reference_tokens)
    masks, fields, ends = positions(reference)  # bit masks: positions of each token, of sentences, of sentence ends
    # for each token of each predicted sentence, its positions in the reference; None if it is not there
    sentence_masks = [list(map(masks.get, sentence)) for sentence in prediction]
    token_masks = list(chain.from_iterable(sentence_masks))
    word_counts = ngram_ends(token_masks, ends, 1)  # occurrences in the prediction of each word of the reference
    counts = {}
    for variant in variants:
        if variant == "rougeL":
            counts[variant] = Counts(lcs_length(tokens, reference_tokens), *sizes)
        elif variant == "rougeLsum":
            union = union_lcs(sentence_masks, fields)  # positions in the reference
            counts[variant] = Counts(clipped(word_counts, union), *sizes)
        else:
            n = int(variant.removeprefix("rouge"))
            hits = clipped(word_counts if n == 1 else ngram_ends(token_masks, ends, n))
            num_ngrams = [max(size - n + 1, 0) for size in sizes]  # a text of m words has m - n + 1 n-grams
            counts[variant] = Counts(hits, *num_ngrams)
    return counts
