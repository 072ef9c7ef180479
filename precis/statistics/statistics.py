"""Intervals and corrections of scores. Every draw is a function of its seed."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

LEVEL = 0.95  # confidence level
RESAMPLES = 10_000  # number of bootstrap samples
_BLOCK = 100_000  # draws held at a time: they stay in the processor's cache


class Interval(NamedTuple):
    """A mean over documents and its bootstrap interval; floats, or arrays with one entry per measure."""

    mean: float | Array
    low: float | Array
    high: float | Array


def bootstrap_interval(scores: ArrayLike, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """Return the mean over documents and its percentile bootstrap interval (Efron and Tibshirani 1993, chapter 13).

    Documents are drawn with replacement, as many as there are; the bounds are the (1 - L) / 2 and (1 + L) / 2 quantiles
    of the means, for the confidence level L = `LEVEL`.

    Args:
        scores: scores of N documents, [N], or by M measures, [N, M]; all measures use the same resamples. Missing
            scores are NaN and left out of means.
    """
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim not in (1, 2) or not len(table):
        raise ValueError(f"scores have shape [documents] or [documents, measures]; got {list(table.shape)}")
    if table.ndim == 1:  # the scores of a single measure: floats
        return Interval(*(values.item() for values in bootstrap_interval(table[:, None], resamples, seed)))
    return Interval(column_means(table), *percentile_bounds(resampled_means(table, resamples, seed)))  # [M] each


def resampled_means(table: Array, resamples: int = RESAMPLES, seed: int = 0) -> Array:
    """Return the means of bootstrap samples of N documents with M scores each, [N, M] -> [resamples, M].

    Missing scores (NaN) are left out of means; the mean of a sample without any score is NaN.
    """
    present = ~np.isnan(table)
    if present.all():
        return resampled_sums(table, resamples, seed) / len(table)
    sums = resampled_sums(np.hstack([np.where(present, table, 0), present]), resamples, seed)  # [resamples, 2 M]
    totals, counts = np.hsplit(sums, 2)  # sums of scores, and how many there are, [resamples, M] each
    return np.divide(totals, counts, out=np.full_like(totals, np.nan), where=counts > 0)


def resampled_sums(table: Array, resamples: int = RESAMPLES, seed: int = 0) -> Array:
    """Return sums over bootstrap samples of N documents with M values each, [N, M] -> [resamples, M].

    The same N and seed draw the same documents. Corpus-level scores, such as BLEU, are functions of such sums.
    """
    if resamples < 1:
        raise ValueError(f"at least one resample is needed; got {resamples}")
    documents = len(table)
    rng = np.random.default_rng(seed)
    block = max(1, _BLOCK // documents)  # resamples at a time: at most `_BLOCK` draws, or one resample
    sums = []
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        # How often each resample draws each document, [size, N], by one `bincount`: r N + d is document d of sample r.
        drawn = rng.integers(documents, size=(size, documents)) + documents * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * documents).reshape(size, documents)
        sums.append(counts.astype(np.float64) @ table)  # [size, M]
    return np.concatenate(sums)


def column_means(table: Array) -> Array:
    """Return the mean of each column, [N, M] -> [M], leaving out NaN; NaN for a column of NaN only."""
    counts = (~np.isnan(table)).sum(0)
    return np.divide(np.nansum(table, 0), counts, out=np.full(table.shape[1], np.nan), where=counts > 0)


def percentile_bounds(samples: Array) -> Array:
    """Return lower and upper bounds of M scores from bootstrap samples, [resamples, M] -> [2, M], leaving out NaN."""
    columns = [column[~np.isnan(column)] for column in samples.T]
    shares = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    return np.array([np.quantile(column, shares) if column.size else [np.nan] * 2 for column in columns]).T


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for multiple comparisons by the method of Holm (1979).

    The i-th smallest of m p-values becomes max over j <= i of min(1, (m - j + 1) p_(j)); p_(j) is the j-th smallest.
    """
    values = np.asarray(p_values, dtype=np.float64)
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"p lies between 0 and 1; got {list(p_values)}")
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    products = np.minimum(1, (len(values) - np.arange(len(values))) * values[order])  # (m - j + 1) p_(j)
    adjusted[order] = np.maximum.accumulate(products)  # max over j <= i, back in the original order
    return adjusted.tolist()


def number_or_none(value: float) -> float | None:
    """Return a Python float; None for NaN, which JSON cannot represent."""
    return None if np.isnan(value) else float(value)
