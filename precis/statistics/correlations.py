"""Correlations of measures with human judgements, and their uncertainty by resampling systems, documents or both.

D. Deutsch, R. Dror and D. Roth, "A Statistical Analysis of Summarization Evaluation Metrics Using Resampling Methods",
TACL 2021: bootstrap intervals of a correlation (their section 4), and a permutation test of the difference between the
correlations of two metrics (their section 5).
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from precis.statistics.statistics import LEVEL, Array, quantiles

Resampled = Literal["both", "systems", "inputs"]
Level = Literal["summary", "system"]

COEFFICIENTS = ("pearson", "spearman", "kendall")
_BLOCK = 2_000_000  # numbers held at a time


def bootstrap_correlations(
    scores: Array,
    human: Array,
    level: Level,
    resampled: Resampled = "both",
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Return 95 % percentile bootstrap intervals of the correlations between a measure and a judgement.

    Each resample draws systems, documents ("inputs"), or both, with replacement and as many as there are, and computes
    the correlation anew. "both" asks what other systems on other documents would give; its intervals are the widest,
    and the only ones with about the nominal coverage in the paper's simulations.

    Args:
        scores: scores of S systems on N documents, [S, N]; NaN where there is none.
        human: judgements of the same outputs, [S, N]; NaN where there is none.
        level: "summary", the mean over documents of the correlation over systems, or "system", the correlation of the
            systems' means.
        resampled: units that are drawn: "both", "systems" or "inputs".
        resamples: number of resamples.
        seed: seed of the draws.

    Returns:
        Lower and upper bound for each coefficient; NaN if it is undefined in all resamples.
    """
    systems, documents = scores.shape
    rng = np.random.default_rng(seed)
    times_system = _times_drawn(rng, systems, resamples, resampled != "inputs")              # [S, B]
    times_document = _times_drawn(rng, documents, resamples, resampled != "systems")         # [N, B]
    draws = []
    for block in _blocks(resamples, 4 * systems * max(systems, documents)):
        draws.append(correlate(scores, human, level, times_system[:, block], times_document[:, block]))
    values = np.concatenate(draws, axis=1).T                                                 # [B, coefficients]
    low, high = (quantiles(values, share) for share in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return {name: (float(a), float(b)) for name, a, b in zip(COEFFICIENTS, low, high)}


def permutation_test(
    scores: Array, other: Array, human: Array, level: Level, resamples: int = 1000, seed: int = 0
) -> dict[str, float]:
    """Return two-sided p-values of the difference between the correlations of two measures with a judgement.

    Under the null hypothesis the two measures, each standardized, can be exchanged on any output ("Perm-Both" of the
    paper): p = (1 + #{|d*| >= |d|}) / (1 + resamples).

    Args:
        scores, other: scores by the two measures, [S, N]; a document on which an output lacks a score is left out.
        human: judgements, [S, N].
        level, resamples, seed: as in `bootstrap_correlations`.

    Returns:
        p-value for each coefficient; NaN if a correlation is undefined.
    """
    complete = ~np.isnan(scores + other + human).any(0)                                      # [N]
    x, y, human = (table[:, complete] for table in (scores, other, human))
    if x.size == 0:
        return dict.fromkeys(COEFFICIENTS, np.nan)
    x, y = (_standardized(table) for table in (x, y))
    observed = correlate(x, human, level) - correlate(y, human, level)                       # [coefficients, 1]
    rng = np.random.default_rng(seed)
    as_far = np.zeros(len(COEFFICIENTS))
    for block in _blocks(resamples, x.size * len(x)):
        swap = rng.random((block.stop - block.start, *x.shape)) < 0.5                        # [b, S, N]
        first, second = np.where(swap, y, x), np.where(swap, x, y)
        difference = (correlate(first, human, level) - correlate(second, human, level))[..., 0]  # [coefficients, b]
        as_far += (np.abs(difference) >= np.abs(observed) * (1 - 1e-10)).sum(1)
    p_values = np.where(np.isnan(observed[:, 0]), np.nan, (1 + as_far) / (1 + resamples))
    return dict(zip(COEFFICIENTS, p_values.tolist()))


def correlate(
    scores: Array, human: Array, level: Level, times_system: Array | None = None, times_document: Array | None = None
) -> Array:
    """Return the correlations of scores with judgements in each of B resamples, [..., S, N] -> [coefficients, ..., B].

    Args:
        scores: scores, [..., S, N]; NaN where there is none.
        human: judgements, [S, N].
        level: as in `bootstrap_correlations`.
        times_system, times_document: how often each resample has each system, [S, B], and document, [N, B]; by
            default one resample with each of them once.
    """
    times_system = np.ones((scores.shape[-2], 1)) if times_system is None else times_system
    times_document = np.ones((scores.shape[-1], 1)) if times_document is None else times_document
    if level == "summary":
        coefficients = document_correlations(scores, human, times_system)                    # [coefficients, ..., N, B]
        weights = times_document * ~np.isnan(coefficients)
        return _divide((weights * np.nan_to_num(coefficients)).sum(-2), weights.sum(-2))
    present = ~np.isnan(scores + human)
    counts = present @ times_document                                                        # [..., S, B]
    means = [_divide(np.where(present, table, 0) @ times_document, counts) for table in (scores, human)]
    x, y = (np.swapaxes(table, -1, -2) for table in means)                                   # [..., B, S]
    return weighted_correlations(x, y, times_system.T[..., None])[..., 0]


def document_correlations(scores: Array, human: Array, times_system: Array) -> Array:
    """Return the correlations over the systems of each document, [..., S, N] -> [coefficients, ..., N, B].

    They are NaN for a document on which a judged output lacks a score, or whose scores or judgements are all equal.
    """
    unscored = (np.isnan(scores) & ~np.isnan(human)).any(-2, keepdims=True)                  # [..., 1, N]
    x = np.swapaxes(np.where(unscored, np.nan, scores), -1, -2)                              # [..., N, S]
    return weighted_correlations(x, human.T, times_system)


def weighted_correlations(x: Array, y: Array, weights: Array) -> Array:
    """Return Pearson's r, Spearman's rho and Kendall's tau-b of items that occur several times.

    All three are sum_ij a_ij b_ij / sqrt(sum_ij a_ij² sum_ij b_ij²) over pairs of items (Daniels 1944): a_ij is the
    difference of x, the difference of its ranks, or its sign. Ranks, which depend on the draw, come from the signs: the
    rank of an item, less the mean rank, is half the sum of the signs of its differences to all items.

    Args:
        x, y: values of S items, [..., S]; an item with NaN in either is left out.
        weights: how often each item occurs in each of B draws, [S, B] or [..., S, B].

    Returns:
        The coefficients, [3, ..., B]; NaN where x or y is constant.
    """
    missing = np.isnan(x) | np.isnan(y)
    untouched = ~(missing[..., :, None] | missing[..., None, :])
    differences = [np.where(untouched, v[..., :, None] - v[..., None, :], 0) for v in (x, y)]  # [..., S, S] each
    signs = [np.sign(difference) for difference in differences]
    ranks = [sign @ weights for sign in signs]                                               # [..., S, B] each

    def over_pairs(a: Array, b: Array) -> Array:
        return (((a * b) @ weights) * weights).sum(-2)

    def over_items(a: Array, b: Array) -> Array:
        return (weights * a * b).sum(-2)

    terms = ((over_pairs, differences), (over_items, ranks), (over_pairs, signs))  # in the order of COEFFICIENTS
    return np.stack([_divide(product(a, b), np.sqrt(product(a, a) * product(b, b))) for product, (a, b) in terms])


def _times_drawn(rng: np.random.Generator, count: int, resamples: int, random: bool) -> Array:
    """Return how often each of some items is in each resample, [count, B]; once if they are not drawn."""
    if not random:
        return np.ones((count, resamples))
    return rng.multinomial(count, np.full(count, 1 / count), size=resamples).T.astype(np.float64)


def _divide(sums: Array, norms: Array) -> Array:
    """Return a quotient that is NaN where its denominator is 0."""
    return np.divide(sums, norms, out=np.full(np.shape(sums), np.nan), where=norms > 0)


def _standardized(table: Array) -> Array:
    """Return a table with mean 0 and deviation 1; zeros if it is constant."""
    deviation = table.std()
    return (table - table.mean()) / (deviation if deviation > 0 else 1)


def _blocks(count: int, numbers_each: int) -> Iterator[slice]:
    """Yield blocks of draws that fit in memory."""
    size = max(1, _BLOCK // max(1, numbers_each))
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
