import math

import numpy as np
import pytest
from scipy import stats

from benchmarks.evidence import REPETITIONS, rejected, simulate
from precis.statistics import statistics
from precis.statistics.significance import format_p, mean_difference, paired_difference, significant, system_interval
from precis.statistics.statistics import bootstrap_interval, holm, resampled_means


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def same_for_all_documents(means) -> np.ndarray:
    return np.broadcast_to(np.array(means)[:, None, None], (len(means), 6, 1))


def numbers(difference) -> list[float]:
    return [values[0] for values in (difference.mean, difference.low, difference.high, difference.p)]


def of_scipy(test, mean: float) -> list[float]:
    return [mean, *test.confidence_interval(), test.pvalue]


def test_the_test_is_students_over_documents_and_welchs_over_seeds(rng):
    one, other = rng.normal(0.0, 1.0, 40), rng.normal(0.3, 1.0, 40)
    expected = of_scipy(stats.ttest_rel(one, other), (one - other).mean())
    assert numbers(mean_difference(one[None, :, None], other[None, :, None])) == pytest.approx(expected)
    interval = system_interval(one[None, :, None])
    assert [bound[0] for bound in interval] == pytest.approx(of_scipy(stats.ttest_1samp(one, 0), one.mean())[:3])
    one, two = rng.normal(1, 1, 3), rng.normal(0, 3, 4)
    runs, baseline = same_for_all_documents(one), same_for_all_documents(two)
    for difference, test, mean in (
        (mean_difference(runs, baseline), stats.ttest_ind(one, two, equal_var=False), one.mean() - two.mean()),
        (paired_difference(runs, baseline[:3]), stats.ttest_rel(one, two[:3]), (one - two[:3]).mean()),
        (mean_difference(baseline[:1], runs, (True, False)), stats.ttest_1samp(two[0] - one, 0), two[0] - one.mean()),
    ):
        assert numbers(difference) == pytest.approx(of_scipy(test, mean))


def test_seeds_and_documents_add_their_variances_with_satterthwaites_freedom(rng):
    scores = rng.normal(0.4, 1, (3, 30, 1)) + rng.normal(0, 0.2, (3, 1, 1))
    baseline = rng.normal(0, 1, (4, 30, 1)) + rng.normal(0, 0.2, (4, 1, 1))
    mean, p_values, half_widths = scores.mean() - baseline.mean(), [], []
    parts = [
        (np.var(scores.mean(1), ddof=1) / 3, 2),
        (np.var(baseline.mean(1), ddof=1) / 4, 3),
        (np.var(scores.mean(0) - baseline.mean(0), ddof=1) / 30, 29),
    ]
    for used in (parts, parts[:2]):  # over seeds and documents, over seeds alone
        variance = sum(part for part, _ in used)
        freedom = variance**2 / sum(part**2 / degrees for part, degrees in used)
        p_values.append(2 * stats.t.sf(abs(mean) / math.sqrt(variance), freedom))
        half_widths.append(stats.t.ppf(0.975, freedom) * math.sqrt(variance))
    expected = [mean, mean - max(half_widths), mean + max(half_widths), max(p_values)]
    assert numbers(mean_difference(scores, baseline)) == pytest.approx(expected)


def test_p_and_interval_agree_and_a_detectable_difference_is_found_in_four_of_five_cases():
    for noise in (0.0, 1.0, 3.0):
        difference = paired_difference(*simulate(3, 50, noise, 2.0, 0.0))
        excluded = (difference.low > 0) | (difference.high < 0)
        assert (excluded == (difference.p < 0.05)).all() and 0 < excluded.mean() < 1
    for seeds in (3, 10):
        detectable = np.median(mean_difference(*simulate(seeds, 200, 0.5, 0.0, 0.0)).detectable)
        assert 0.7 < rejected(mean_difference(*simulate(seeds, 200, 0.5, detectable, 0.0))) < 0.93


def test_scores_without_variance_a_single_document_and_one_that_lacks_a_score_in_a_run(rng):
    equal = same_for_all_documents([2.0, 2.0])
    assert numbers(mean_difference(equal, equal)) == [0, 0, 0, 1]
    assert numbers(mean_difference(equal, equal - 1)) == [1, 1, 1, 0]
    single = mean_difference(equal[:, :1], equal[:, :1] - 1)
    assert single.mean[0] == 1 and np.isnan([single.low[0], single.high[0], single.p[0]]).all()
    # a document that lacks a score in one run is left out
    scores, baseline = rng.random((2, 8, 1)), rng.random((3, 8, 1))
    without = mean_difference(scores[:, :5], baseline[:, :5])
    scores[1, 5:7] = baseline[2, 7] = np.nan
    assert numbers(mean_difference(scores, baseline)) == pytest.approx(numbers(without))
    assert math.isclose(system_interval(scores).mean[0], scores[:, [0, 1, 2, 3, 4, 7]].mean())
    baseline[:] = np.nan
    assert np.isnan(mean_difference(scores, baseline)).all()


def test_significance_is_after_holms_correction():
    # sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1; the last may not fall below the one before
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm([1.2])
    # 0.01 times 3; then 0.03 times 2, and no further; what is not tested does not count
    assert significant(np.array([[0.01, np.nan], [0.03, 0.04]])).tolist() == [[True, False], [False, False]]
    assert significant(np.array([0.04])).tolist() == [True]
    assert [format_p(0.21), format_p(1e-9)] == ["0.2100", "<0.0001"]


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_systems_that_do_not_differ_are_rarely_told_apart(seeds):
    """The noise between seeds is 0 to 5 times that of documents, 0.47 with 200 documents; results show 0.1 to 1.7."""
    limit = 0.05 + 3 * math.sqrt(0.05 * 0.95 / REPETITIONS)
    for noise in (0.0, 0.5, 1.0, 2.4):
        scores, baseline = simulate(seeds, 200, noise, 0.0, 0.0)
        assert rejected(mean_difference(scores, baseline)) < limit
        assert rejected(paired_difference(scores, baseline)) < limit
        single = system_interval(scores)
        assert ((single.low > 0) | (single.high < 0)).mean() < limit
        differences = scores.mean(0) - baseline.mean(0)
        # what the test over documents alone does
        assert noise < 1 or (stats.ttest_1samp(differences, 0).pvalue < 0.05).mean() > 0.25


def test_bootstrap_interval_is_scipys_and_resamples_equal_those_of_a_plain_loop(rng, monkeypatch):
    scores = rng.gamma(2.0, 10.0, size=60)
    ours, drawn = bootstrap_interval(scores, resamples=20_000), {"n_resamples": 20_000, "method": "percentile"}
    theirs = stats.bootstrap((scores,), np.mean, **drawn, rng=np.random.default_rng(1)).confidence_interval
    error = scores.std() / math.sqrt(60)
    assert math.isclose(ours.mean, scores.mean(), rel_tol=1e-12)
    assert abs(ours.low - theirs.low) < 0.06 * error and abs(ours.high - theirs.high) < 0.06 * error
    # missing scores are left out
    scores = rng.random((9, 2))
    scores[[1, 4, 5], 1] = np.nan
    drawn = np.random.default_rng(3).integers(9, size=(50, 9))
    expected = [[np.nanmean(scores[row, column]) for column in range(2)] for row in drawn]
    np.testing.assert_allclose(resampled_means(scores, 50, seed=3), expected)
    monkeypatch.setattr(statistics, "_BLOCK", 20)  # two resamples at a time
    np.testing.assert_allclose(resampled_means(scores, 50, seed=3), expected)
    # columns, and a measure that no document has
    interval = bootstrap_interval(np.array([[1.0, np.nan], [3.0, np.nan]]), resamples=2_000)
    assert [values[0] for values in interval] == [2.0, 1.0, 3.0] and all(math.isnan(values[1]) for values in interval)
    assert bootstrap_interval([5.0, 5.0]) == (5.0, 5.0, 5.0)
    for scores, resamples, message in ([], 9, "documents"), ([1.0], 0, "at least one resample"):
        with pytest.raises(ValueError, match=message):
            bootstrap_interval(scores, resamples)
