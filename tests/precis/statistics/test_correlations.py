"""Intervals and tests of correlations, against plain loops over scipy."""

import numpy as np
import pytest
from scipy import stats

from precis.statistics.correlations import bootstrap_correlations, weighted_correlations

COEFFICIENTS = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}


def tables(seed=0, systems=6, documents=9, noise=1.0):
    """Scores and judgements with ties, whose systems differ in quality."""
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=(systems, 1)) + rng.normal(size=(systems, documents)) / 2
    human = np.round(2 * (quality + rng.normal(size=quality.shape) / 2)) / 2
    return np.round(quality + noise * rng.normal(size=quality.shape), 1), human


@pytest.mark.parametrize("name", COEFFICIENTS)
def test_items_that_occur_several_times_are_repeated_items(name):
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 5, size=(2, 8)).astype(float)
    x[3] = np.nan  # left out
    weights = rng.integers(0, 4, size=(8, 5))
    coefficients = weighted_correlations(x, y, weights.astype(float))[list(COEFFICIENTS).index(name)]
    for draw in range(5):
        drawn = [i for i in range(8) if i != 3 for _ in range(weights[i, draw])]
        expected = COEFFICIENTS[name](x[drawn], y[drawn]).statistic
        assert coefficients[draw] == pytest.approx(expected, abs=1e-12)
    assert np.isnan(weighted_correlations(np.ones(4), np.arange(4.0), np.ones((4, 1)))).all()


def loop(scores, human, level, systems, documents, name):
    """The correlation of one resample, system by system and document by document."""
    x, y = scores[np.ix_(systems, documents)], human[np.ix_(systems, documents)]
    if level == "system":
        return COEFFICIENTS[name](np.nanmean(x, 1), np.nanmean(np.where(np.isnan(x), np.nan, y), 1)).statistic
    columns = [place for place, document in enumerate(documents) if not np.isnan(scores[:, document]).any()]
    values = [COEFFICIENTS[name](x[:, column], y[:, column]).statistic for column in columns]
    return np.nanmean(values)


@pytest.mark.filterwarnings("ignore:An input array is constant", "ignore:Mean of empty slice")
@pytest.mark.parametrize("level", ["summary", "system"])
def test_intervals_are_quantiles_over_a_plain_loop(level):
    scores, human = tables()
    scores[1, 2] = np.nan
    (systems, documents), draws = scores.shape, 60
    bounds = bootstrap_correlations(scores, human, level, draws, seed=4)
    rng = np.random.default_rng(4)  # the same draws: first systems, then documents
    times = [rng.multinomial(count, np.full(count, 1 / count), size=draws) for count in (systems, documents)]
    chosen = [[np.repeat(np.arange(len(row)), row) for row in table] for table in times]
    for name in COEFFICIENTS:
        values = [loop(scores, human, level, s, d, name) for s, d in zip(*chosen)]
        expected = np.nanquantile(values, [0.025, 0.975])
        np.testing.assert_allclose(bounds[name], expected, atol=1e-9)
