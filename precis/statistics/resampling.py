"""Uncertainty of correlations with human judgements, by resampling systems, documents or both.

D. Deutsch, R. Dror and D. Roth, "A Statistical Analysis of Summarization Evaluation Metrics Using Resampling Methods",
TACL 2021: bootstrap intervals of a correlation (their section 4), and a permutation test of the difference between the
correlations of two metrics (their section 5).
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from precis.statistics.statistics import CORRELATIONS, LEVEL, Array, quantiles

Resampled = Literal["both", "systems", "inputs"]
Level = Literal["summary", "system"]

_BLOCK = 2_000_000  # numbers held at a time
_NAMES = list(CORRELATIONS)


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
    times_system = _times_drawn(rng, systems, resamples, resampled != "inputs")  # [S, B]
    times_document = _times_drawn(rng, documents, resamples, resampled != "systems")  # [N, B]
    correlate = _summary_level if level == "summary" else _system_level
    draws = correlate(scores, human, times_system, times_document)  # [B, coefficients]
    low, high = (quantiles(draws, share) for share in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return {name: (float(a), float(b)) for name, a, b in zip(_NAMES, low, high)}


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
    complete = ~np.isnan(scores + other + human).any(0)  # [N]
    x, y, human = (table[:, complete] for table in (scores, other, human))
    if x.size == 0:
        return dict.fromkeys(_NAMES, np.nan)
    x, y = (_standardized(table) for table in (x, y))
    observed = _plain(x, human, level) - _plain(y, human, level)  # [coefficients]
    rng = np.random.default_rng(seed)
    as_far = np.zeros(len(_NAMES))
    for start, stop in _blocks(resamples, x.size * len(x)):
        swap = rng.random((stop - start, *x.shape)) < 0.5  # [b, S, N]
        first, second = np.where(swap, y, x), np.where(swap, x, y)
        difference = _plain(first, human, level) - _plain(second, human, level)  # [b, coefficients]
        as_far += (np.abs(difference) >= np.abs(observed) * (1 - 1e-10)).sum(0)
    p_values = np.where(np.isnan(observed), np.nan, (1 + as_far) / (1 + resamples))
    return dict(zip(_NAMES, p_values.tolist()))


def _times_drawn(rng: np.random.Generator, count: int, resamples: int, random: bool) -> Array:
    """Return how often each of some items is in each resample, [count, B]; once if they are not drawn."""
    if not random:
        return np.ones((count, resamples))
    return rng.multinomial(count, np.full(count, 1 / count), size=resamples).T.astype(np.float64)


def _summary_level(scores: Array, human: Array, times_system: Array, times_document: Array) -> Array:
    """Return the mean over documents of the correlations over systems in each resample, [B, coefficients]."""
    # As in `human`: a document on which an output lacks a score counts for none.
    unscored = (np.isnan(scores) & ~np.isnan(human)).any(0)
    x, y = np.where(unscored, np.nan, scores).T, human.T  # [N, S]
    rows = []
    for start, stop in _blocks(times_system.shape[1], x.size * 4):
        block = slice(start, stop)
        coefficients = weighted_correlations(x, y, times_system[:, block])  # [coefficients, N, b]
        weights = times_document[:, block] * ~np.isnan(coefficients)
        sums, counts = (weights * np.nan_to_num(coefficients)).sum(1), weights.sum(1)
        rows.append(np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0).T)
    return np.concatenate(rows)


def _system_level(scores: Array, human: Array, times_system: Array, times_document: Array) -> Array:
    """Return the correlations of the systems' means in each resample, [B, coefficients]."""
    present = ~np.isnan(scores + human)
    counts = times_document.T @ present.T  # [B, S]
    means = []
    for table in (scores, human):
        sums = times_document.T @ np.where(present, table, 0).T
        means.append(np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0))
    rows = []
    for start, stop in _blocks(len(counts), 4 * len(scores) ** 2):
        block = slice(start, stop)
        weights = times_system.T[block, :, None]  # [b, S, 1]
        rows.append(weighted_correlations(means[0][block], means[1][block], weights)[..., 0].T)
    return np.concatenate(rows)


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
    ranks = [sign @ weights for sign in signs]  # [..., S, B] each

    def over_pairs(a: Array, b: Array) -> Array:
        return (((a * b) @ weights) * weights).sum(-2)

    def over_items(a: Array, b: Array) -> Array:
        return (weights * a * b).sum(-2)

    terms = ((over_pairs, differences), (over_items, ranks), (over_pairs, signs))  # in the order of CORRELATIONS
    coefficients = []
    for product, (a, b) in terms:
        norm = np.sqrt(product(a, a) * product(b, b))
        coefficients.append(np.divide(product(a, b), norm, out=np.full_like(norm, np.nan), where=norm > 0))
    return np.stack(coefficients)


def _plain(scores: Array, human: Array, level: Level) -> Array:
    """Return the correlations of whole tables, [..., S, N] and [S, N] -> [..., coefficients]."""
    if level == "system":
        x, y = scores.mean(-1), human.mean(-1)  # [..., S]
        return np.stack([correlation(x, y) for correlation in CORRELATIONS.values()], axis=-1)
    x, y = np.swapaxes(scores, -1, -2), human.T  # [..., N, S]
    columns = []
    for correlation in CORRELATIONS.values():
        values = correlation(x, y)  # [..., N]
        defined = ~np.isnan(values)
        counts = defined.sum(-1)
        sums = np.where(defined, values, 0).sum(-1)
        columns.append(np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0))
    return np.stack(columns, axis=-1)


def _standardized(table: Array) -> Array:
    """Return a table with mean 0 and deviation 1; zeros if it is constant."""
    deviation = table.std()
    return (table - table.mean()) / (deviation if deviation > 0 else 1)


def _blocks(count: int, numbers_each: int) -> Iterator[tuple[int, int]]:
    """Yield bounds of blocks of draws that fit in memory."""
    size = max(1, _BLOCK // max(1, numbers_each))
    for start in range(0, count, size):
        yield start, min(start + size, count)
