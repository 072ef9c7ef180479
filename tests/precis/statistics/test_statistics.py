import math

import numpy as np
import pytest
from scipy import stats

from precis.statistics import statistics
from precis.statistics.statistics import bootstrap_interval, holm, resampled_means


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def test_bootstrap_interval_is_scipys(rng):
    scores = rng.gamma(2.0, 10.0, size=60)
    ours = bootstrap_interval(scores, resamples=20_000)
    theirs = stats.bootstrap(
        (scores,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    error = scores.std() / math.sqrt(60)
    assert math.isclose(ours.mean, scores.mean(), rel_tol=1e-12)
    assert abs(ours.low - theirs.low) < 0.06 * error
    assert abs(ours.high - theirs.high) < 0.06 * error


def test_resamples_equal_those_of_a_plain_loop_and_missing_scores_are_left_out(rng, monkeypatch):
    scores = rng.random((9, 2))
    scores[[1, 4, 5], 1] = np.nan
    drawn = np.random.default_rng(3).integers(9, size=(50, 9))
    expected = [[np.nanmean(scores[row, column]) for column in range(2)] for row in drawn]
    np.testing.assert_allclose(resampled_means(scores, 50, seed=3), expected)
    monkeypatch.setattr(statistics, "_BLOCK", 20)  # two resamples at a time
    np.testing.assert_allclose(resampled_means(scores, 50, seed=3), expected)


def test_interval_of_columns_and_of_a_measure_that_no_document_has():
    table = np.array([[1.0, np.nan], [3.0, np.nan]])
    found = bootstrap_interval(table, resamples=2_000)
    assert found.mean[0] == 2.0 and found.low[0] == 1.0 and found.high[0] == 3.0
    assert all(math.isnan(values[1]) for values in found)
    assert bootstrap_interval([5.0, 5.0]) == (5.0, 5.0, 5.0)


def test_holm_by_hand():
    # sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1; the last may not fall below the one before
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm([1.2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bootstrap_interval([]), "documents"),
        (lambda: bootstrap_interval([1.0], level=95), "between 0 and 1"),
        (lambda: bootstrap_interval([1.0], resamples=0), "at least one resample"),
    ],
)
def test_undefined_statistics_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
