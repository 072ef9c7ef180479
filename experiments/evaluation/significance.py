"""Tests of differences between systems that were trained with several seeds and scored on the same documents.

A system's mean score varies for two reasons: other documents would have other scores, and another seed would give
another model. A test over documents alone answers whether two sets of outputs differ, not whether one system is better:
with the seed noise of small models it rejects far too often. Both factors are therefore treated as random (Clark 1973,
"The language-as-fixed-effect fallacy"): a bootstrap that draws seeds and documents together, and Welch's t-test over
seeds.
"""

import warnings
from typing import NamedTuple

import numpy as np

from experiments.evaluation.statistics import (
    LEVEL,
    RESAMPLES,
    Array,
    Interval,
    bootstrap_interval,
    column_means,
    quantiles,
    resampled_means,
)

_POWER = 2.8  # standard errors: a difference that a two-sided test at 5 % detects in four of five repetitions


def system_interval(scores: Array, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """Return the means of a system and their percentile bootstrap intervals over seeds and documents.

    Args:
        scores: scores of R runs on N documents under M measures, [R, N, M]; a document that lacks a score (nan) in one
            run is left out of that measure.
        level: level of confidence.
        resamples, seed: number of resamples and seed of the bootstrap.

    Returns:
        Mean, lower and upper bound, [M] each.
    """
    (scores,) = keep_shared(scores)
    draws = resampled_system_means(scores, resamples, seed)  # [resamples, M]
    low, high = (quantiles(draws, share) for share in ((1 - level) / 2, (1 + level) / 2))
    return Interval(column_means(scores.mean(0)), low, high)


def hierarchical_bootstrap(scores: Array, baseline: Array, resamples: int = RESAMPLES, seed: int = 0) -> Array:
    """Return two-sided p-values of differences in means, by a bootstrap over seeds and documents.

    Each resample draws the same documents for both systems, and runs of one system independently of the other's. Under
    the null hypothesis the resampled differences d*, shifted to mean zero, are distributed as the observed one:
    p = (1 + #{|d* - d| >= |d|}) / (1 + resamples) (Efron and Tibshirani 1993, chapter 16; the +1 counts the observed
    sample). Where both systems have one run, this is the paired bootstrap over documents.

    Drawing both factors of a crossed design ("pigeonhole bootstrap") gives a variance that is too large rather than too
    small (Owen 2007), because what is peculiar to one run on one document is counted at each level. The test therefore
    errs on the safe side.

    Args:
        scores, baseline: scores of R and Q runs on the same N documents under M measures, [R, N, M] and [Q, N, M]; a
            document that lacks a score (nan) in any of the runs is left out of that measure.
        resamples, seed: number of resamples and seed of the bootstrap.

    Returns:
        p-values, [M]; nan for a measure for which no document has all scores.
    """
    scores, baseline = keep_shared(scores, baseline)
    observed = column_means(scores.mean(0) - baseline.mean(0))  # [M]
    draws = resampled_system_means(scores, resamples, seed, stream=1)
    draws = draws - resampled_system_means(baseline, resamples, seed, stream=2)  # [resamples, M]
    # Draws that equal the observed difference but for rounding count: with few documents there are many of them.
    # So do draws without a document that has all scores (nan): they say nothing against the null hypothesis.
    as_far = ~(np.abs(draws - observed) < np.abs(observed) * (1 - 1e-10))
    return np.where(np.isnan(observed), np.nan, (1 + as_far.sum(0)) / (1 + resamples))


def resampled_system_means(scores: Array, resamples: int = RESAMPLES, seed: int = 0, stream: int = 0) -> Array:
    """Return means over bootstrap samples of documents and of runs, [R, N, M] -> [resamples, M].

    Of R runs, R - 1 are drawn with replacement: the variance of their mean is then the unbiased estimate S² / R. With R
    draws it would be (R - 1) / R of that, two thirds with three seeds (Rao and Wu 1988). A single run is kept as it is.

    Args:
        scores: scores of R runs on N documents under M measures, [R, N, M].
        resamples: number of samples.
        seed: seed of the draws; the same N and seed draw the same documents.
        stream: number of an independent stream of draws of runs.
    """
    runs, documents, measures = scores.shape
    columns = scores.transpose(1, 0, 2).reshape(documents, runs * measures)
    by_run = resampled_means(columns, resamples, seed).reshape(resamples, runs, measures)
    if runs == 1:
        return by_run[:, 0]
    rng = np.random.default_rng([seed, stream])
    times_drawn = rng.multinomial(runs - 1, np.full(runs, 1 / runs), size=resamples)  # [resamples, R]
    return np.einsum("br,brm->bm", times_drawn / (runs - 1), by_run)


class PairedDifference(NamedTuple):
    """Difference of two systems by one measure, paired by seed and document.

    Attributes:
        mean: mean difference over seeds and documents.
        low, high: 95 % interval over seeds and documents.
        documents_low, documents_high: 95 % interval over documents, with the seeds as they are.
        detectable: smallest true difference that is detected in four of five repetitions.
        p: p-value of the hypothesis that there is no difference, over seeds and documents.
    """

    mean: float
    low: float
    high: float
    documents_low: float
    documents_high: float
    detectable: float
    p: float


def paired_differences(scores: Array, baseline: Array) -> list[PairedDifference]:
    """Return the difference of two systems by each measure, for runs that are paired by seed.

    Runs with the same seed have the same initial weights and order of documents, so that seeds are paired like
    documents.

    Args:
        scores, baseline: scores of R runs with the same seeds on the same N documents by M measures, [R, N, M].
    """
    paired = scores - baseline
    draws = resampled_system_means(paired)  # [resamples, M]
    low, high = np.quantile(draws, (0.025, 0.975), axis=0)
    means, documents_low, documents_high = bootstrap_interval(paired.mean(0))
    p_values = hierarchical_bootstrap(paired, np.zeros_like(paired[:1]))
    columns = (means, low, high, documents_low, documents_high, _POWER * draws.std(0), p_values)
    return [PairedDifference(*map(float, row)) for row in zip(*columns)]


def seed_test(scores: Array, baseline: Array, fixed: tuple[bool, bool] = (False, False)) -> Array:
    """Return two-sided p-values of differences in means over seeds, with the documents as they are.

    Welch's t-test of the runs' means: with three seeds a permutation has twenty arrangements and cannot reach 0.05, and
    two systems seldom have the same spread (Welch 1947; recommended for comparing learners over few seeds by Colas,
    Sigaud and Oudeyer 2019). Outputs that come from no training, such as a baseline's, have no seed: the other system's
    means are then tested against theirs by a one-sample t-test.

    Args:
        scores, baseline: scores of R and Q runs on the same N documents under M measures, [R, N, M] and [Q, N, M];
            nan as in `hierarchical_bootstrap`.
        fixed: for each of the two, whether its outputs are fixed, so that they do not vary with a seed.

    Returns:
        p-values, [M]; nan where a system that is not fixed has a single run, or where both are fixed.
    """
    from scipy import stats  # slow to import, and every command imports this module

    scores, baseline = keep_shared(scores, baseline)
    means = np.stack([column_means(run) for run in scores])  # [R, M]
    baseline_means = np.stack([column_means(run) for run in baseline])  # [Q, M]
    trained = [system for system, is_fixed in zip((means, baseline_means), fixed) if not is_fixed]
    if not trained or any(len(system) < 2 for system in trained):
        return np.full(means.shape[1], np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # runs that are all equal have no variance
        if fixed[0] or fixed[1]:
            (varying,), constant = trained, (means if fixed[0] else baseline_means).mean(0)
            p_values = stats.ttest_1samp(varying, constant, axis=0).pvalue
        else:
            p_values = stats.ttest_ind(means, baseline_means, axis=0, equal_var=False).pvalue
    equal = means.mean(0) == baseline_means.mean(0)
    return np.where(equal & np.isnan(p_values), 1.0, p_values)


def keep_shared(*systems: Array) -> list[Array]:
    """Return the scores with nan in every run, of every system, where one run lacks a document's score."""
    lacking = np.any([np.isnan(scores).any(0) for scores in systems], axis=0)  # [N, M]
    return [np.where(lacking, np.nan, scores) for scores in systems]
