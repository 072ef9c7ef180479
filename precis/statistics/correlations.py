"""Correlations of measures with human judgements, and their uncertainty by resampling systems and documents.

D. Deutsch, R. Dror and D. Roth, "A Statistical Analysis of Summarization Evaluation Metrics Using Resampling Methods",
TACL 2021, section 4: bootstrap intervals of a correlation.
"""

from typing import Literal

import numpy as np

from precis.statistics.statistics import LEVEL, Array, quantiles

Level = Literal["summary", "system"]

COEFFICIENTS = ("pearson", "spearman", "kendall")
_BLOCK = 2_000_000  # numbers held at a time


def bootstrap_correlations(
    scores: Array, human: Array, level: Level, resamples: int = 1000, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Return 95 % percentile bootstrap intervals of the correlations between a measure and a judgement.

    Each resample draws systems and documents with replacement, as many as there are, and computes the correlation anew:
    what other systems on other documents would give. Intervals that draw one of the two alone are too narrow.

    Args:
        scores: scores of S systems on N documents, [S, N]; NaN where there is none.
        human: judgements of the same outputs, [S, N]; NaN where there is none.
        level: "summary", the mean over documents of the correlation over systems, or "system", the correlation of the
            systems' means.
        resamples: number of resamples, B.
        seed: seed of the draws.

    Returns:
        Lower and upper bound for each coefficient; NaN if it is undefined in all resamples.
    """
    systems, documents = scores.shape
    rng = np.random.default_rng(seed)
    # how often each resample has each item, [S, B] and [N, B]
    times_system, times_document = (
        rng.multinomial(count, np.full(count, 1 / count), size=resamples).T.astype(np.float64)
        for count in (systems, documents)
    )
    draws = []
    size = max(1, _BLOCK // (4 * systems * max(systems, documents)))
    for start in range(0, resamples, size):
        block = slice(start, start + size)
        draws.append(correlate(scores, human, level, times_system[:, block], times_document[:, block]))
    values = np.concatenate(draws, axis=1).T                                                 # [B, coefficients]
    low, high = (quantiles(values, share) for share in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return {name: (float(a), float(b)) for name, a, b in zip(COEFFICIENTS, low, high)}


def correlate(
    scores: Array, human: Array, level: Level, times_system: Array | None = None, times_document: Array | None = None
) -> Array:
    """Return the correlations of scores with judgements in each of B resamples, [coefficients, B].

    Args:
        scores, human, level: as in `bootstrap_correlations`.
        times_system, times_document: how often each resample has each system, [S, B], and document, [N, B]; by
            default one resample with each of them once.
    """
    times_system = np.ones((len(scores), 1)) if times_system is None else times_system
    times_document = np.ones((scores.shape[1], 1)) if times_document is None else times_document
    if level == "summary":
        coefficients = document_correlations(scores, human, times_system)                    # [coefficients, N, B]
        weights = times_document * ~np.isnan(coefficients)
        return _divide((weights * np.nan_to_num(coefficients)).sum(-2), weights.sum(-2))
    present = ~np.isnan(scores + human)
    counts = present @ times_document                                                        # [S, B]
    means = [_divide(np.where(present, table, 0) @ times_document, counts) for table in (scores, human)]
    x, y = (table.T for table in means)                                                      # [B, S]
    return weighted_correlations(x, y, times_system.T[..., None])[..., 0]


def document_correlations(scores: Array, human: Array, times_system: Array) -> Array:
    """Return the correlations over the systems of each document, [S, N] -> [coefficients, N, B].

    They are NaN for a document on which a judged output lacks a score, or whose scores or judgements are all equal.
    """
    unscored = (np.isnan(scores) & ~np.isnan(human)).any(0)                                  # [N]
    return weighted_correlations(np.where(unscored, np.nan, scores).T, human.T, times_system)


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


def _divide(sums: Array, norms: Array) -> Array:
    """Return a quotient that is NaN where its denominator is 0."""
    return np.divide(sums, norms, out=np.full(np.shape(sums), np.nan), where=norms > 0)
