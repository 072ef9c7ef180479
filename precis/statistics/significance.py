"""One rule of evidence for systems that were trained with several seeds and scored on the same documents.

A system's mean score varies for two reasons: other documents would have other scores, and another seed would give
another model. A test over documents alone answers whether two sets of outputs differ, not whether one system is better:
with the seed noise of small models it rejects far too often. Both factors are therefore treated as random. The variance
of a difference is the sum of its variance over seeds and its variance over documents, with degrees of freedom after
Satterthwaite (1946), which makes t² the min F' of Clark (1973, "The language-as-fixed-effect fallacy"). What is
peculiar to one run on one document is counted in both variances, so that the test errs on the safe side (Owen 2007).

With very few seeds that test still trusts their spread too much, so a difference must also pass a t-test over seeds
alone. Its p-value is the larger one of the two, and its interval the wider one, so that they agree.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy  # which imports `scipy.special` at its first use
from numpy.typing import NDArray

from precis.statistics.statistics import LEVEL, Array, Interval, column_means, holm

SIGNIFICANT = 1 - LEVEL  # p-values below it are significant
_POWER = 0.8  # share of repetitions in which a detectable difference is significant


class Difference(NamedTuple):
    """Difference in the means of two systems by M measures, [M] each; for a single document, all but `mean` are nan."""

    mean: Array  # mean difference over seeds and documents
    low: Array  # 95 % interval of the difference, the wider one of the two tests
    high: Array
    p: Array  # two-sided p-value, the larger one of the two tests; below 0.05 where the interval excludes 0
    detectable: Array  # smallest true difference that both tests find in four of five repetitions, without correction


class _Error(NamedTuple):
    """Squared standard errors of the means by M measures (`variance`), and their degrees of freedom, [M] each."""

    variance: Array
    freedom: Array

    def quantile(self, share: float) -> Array:
        """Return quantiles of the error of the mean by Student's t distribution, [M]; `share` is between 0 and 1."""
        return np.sqrt(self.variance) * scipy.special.stdtrit(self.freedom, share)

    def p_value(self, mean: Array) -> Array:
        """Return two-sided p-values of the hypothesis that the true mean is 0, [M]."""
        with np.errstate(divide="ignore", invalid="ignore"):  # variance 0 gives t = inf and p = 0, or 0 / 0
            t = np.abs(mean) / np.sqrt(self.variance)  # [M]
        equal = (mean == 0) & (self.variance == 0)  # 0 / 0: the systems have equal scores, so p = 1
        return np.where(equal, 1.0, 2 * scipy.special.stdtr(self.freedom, -t))  # stdtr: Student's t distribution


def system_interval(scores: Array) -> Interval:
    """Return means of a system and 95 % intervals over seeds and documents, as if compared with scores of 0, [M] each.

    `scores` are of R runs on N documents under M measures, [R, N, M]; nan leaves a document out of the measure.
    """
    return Interval(*paired_difference(scores, np.zeros_like(scores))[:3])  # mean, low, high


def mean_difference(scores: Array, baseline: Array, fixed: tuple[bool, bool] = (False, False)) -> Difference:
    """Return the differences in means of two systems with independently trained runs, by the stricter of two tests.

    One test is over seeds and documents, one over seeds alone. The latter is Welch's (1947; recommended for few seeds
    by Colas, Sigaud and Oudeyer 2019), since two systems seldom have the same spread; a permutation test of 3 + 3 runs
    has 20 arrangements and cannot reach 0.05. Outputs that come from no training, such as a baseline's, have no seed: a
    one-sample t-test then compares the means of the other system's runs with the mean of these outputs. Where a trained
    system has a single run, or both systems are fixed, there is no test over seeds.

    Args:
        scores, baseline: scores of R and Q runs on the same N documents under M measures, [R, N, M] and [Q, N, M]; a
            document that lacks a score (nan) in any of the runs is left out of that measure.
        fixed: for each of the two, whether its outputs are fixed, so that they do not vary with a seed.
    """
    systems = keep_shared(scores, baseline)  # nan in all runs where one lacks the score
    by_document = systems[0].mean(0) - systems[1].mean(0)  # [N, M]
    mean = column_means(by_document)  # [M]
    trained = [system for system, is_fixed in zip(systems, fixed) if not is_fixed]
    repeated = [system for system in trained if len(system) > 1]  # a single run has no variance over seeds
    over_seeds = [_error_of_mean(np.stack([column_means(run) for run in system])) for system in repeated]
    tests = [_error_of_sum([*over_seeds, _error_of_mean(by_document)])]  # over seeds and documents: variances add up
    if trained and len(over_seeds) == len(trained):  # each trained system has several runs
        tests.append(_error_of_sum(over_seeds))  # over seeds alone
    # of both tests: the wider interval, larger p-value and larger detectable difference (half width + power quantile)
    half_width = np.max([test.quantile((1 + LEVEL) / 2) for test in tests], axis=0)
    p = np.max([test.p_value(mean) for test in tests], axis=0)
    detectable = np.max([test.quantile((1 + LEVEL) / 2) + test.quantile(_POWER) for test in tests], axis=0)
    return Difference(mean, mean - half_width, mean + half_width, p, detectable)


def paired_difference(scores: Array, baseline: Array) -> Difference:
    """Return the differences in means of two systems whose runs are paired by seed, with tests.

    Runs with the same seed have the same initial weights and order of documents, or are one model with two inputs, so
    their differences are tested against 0, which has no variance.

    The scores are of R runs with the same seeds on the same N documents by M measures, [R, N, M].
    """
    return mean_difference(scores - baseline, np.zeros_like(scores[:1]), fixed=(False, True))  # a single run of zeros


def significant(p_values: Array) -> NDArray[np.bool_]:
    """Return which p-values are significant after Holm's correction for several tests; nan (no test) is not."""
    tested = ~np.isnan(p_values)
    adjusted = np.full(p_values.shape, np.nan)
    adjusted[tested] = holm(p_values[tested].tolist())
    return adjusted < SIGNIFICANT


def format_p(p: float) -> str:
    """Return a p-value with four decimals."""
    return f"{p:.4f}" if p >= 0.0001 else "<0.0001"


def keep_shared(*systems: Array) -> list[Array]:
    """Return scores [runs, N, M] of each system, with nan in all runs of all systems where one run lacks the score."""
    lacking = np.any([np.isnan(scores).any(0) for scores in systems], axis=0)  # [N, M]
    return [np.where(lacking, np.nan, scores) for scores in systems]


def _error_of_mean(values: Array) -> _Error:
    """Return the errors of means over K independent values (seeds or documents), [K, M] -> [M]; nan is left out."""
    counts = (~np.isnan(values)).sum(0)  # [M]
    squares = np.nansum((values - column_means(values)) ** 2, axis=0)  # [M]
    with np.errstate(divide="ignore", invalid="ignore"):  # a single value has no variance: nan
        return _Error(squares / (counts - 1) / counts, counts - 1)


def _error_of_sum(errors: Sequence[_Error]) -> _Error:
    """Return the error [M] of a sum of independent means, with the degrees of freedom of Satterthwaite (1946)."""
    variance = sum(error.variance for error in errors)
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 / 0 for equal scores
        freedom = variance**2 / sum(error.variance**2 / error.freedom for error in errors)
    return _Error(variance, np.where(variance == 0, 1.0, freedom))  # 1: arbitrary, since all quantiles are 0
