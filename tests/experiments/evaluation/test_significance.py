import itertools
import math

import numpy as np
import pytest
from scipy.special import stdtr

from experiments.evaluation.significance import (
    hierarchical_bootstrap,
    resampled_system_means,
    seed_test,
    system_interval,
)

SIMULATIONS = 300


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def test_with_one_run_each_the_bootstrap_draws_documents_as_a_plain_loop_does(rng):
    one, other = rng.normal(0.0, 1.0, 40), rng.normal(0.1, 1.0, 40)
    differences, drawn = one - other, np.random.default_rng(5).integers(40, size=(300, 40))
    as_far = sum(abs(differences[row].mean() - differences.mean()) >= abs(differences.mean()) for row in drawn)
    (p_value,) = hierarchical_bootstrap(one[None, :, None], other[None, :, None], resamples=300, seed=5)
    assert math.isclose(p_value, (1 + as_far) / 301)


def test_with_equal_documents_the_bootstrap_draws_seeds_as_enumeration_does():
    runs, baseline = [3.0, 5.0, 7.0], [1.0, 2.0, 6.0]
    observed = np.mean(runs) - np.mean(baseline)
    # two of three runs of each system, with replacement: 9 times 9 equally probable resamples
    draws = [[np.mean(pair) for pair in itertools.product(system, repeat=2)] for system in (runs, baseline)]
    far = [abs(one - other - observed) >= abs(observed) - 1e-9 for one in draws[0] for other in draws[1]]
    scores, others = (np.broadcast_to(np.array(system)[:, None, None], (3, 4, 1)) for system in (runs, baseline))
    (p_value,) = hierarchical_bootstrap(scores, others, resamples=40_000)
    assert abs(p_value - np.mean(far)) < 0.01


def test_the_variance_over_seeds_is_unbiased(rng):
    means = rng.normal(size=4)
    draws = resampled_system_means(np.broadcast_to(means[:, None, None], (4, 3, 1)), resamples=40_000)
    assert math.isclose(draws.var(), means.var(ddof=1) / 4, rel_tol=0.03)
    assert math.isclose(draws.mean(), means.mean(), abs_tol=0.02)


def test_intervals_cover_seeds_and_documents(rng):
    scores = 50 + rng.normal(0, 2, (5, 1, 1)) + rng.normal(0, 10, (1, 400, 1))
    interval = system_interval(scores)
    expected = np.sqrt(scores.mean(1).var(ddof=1) / 5 + scores.mean(0).var() / 400)
    assert math.isclose(interval.mean[0], scores.mean())
    assert math.isclose(interval.high[0] - interval.low[0], 2 * 1.96 * expected.item(), rel_tol=0.15)


def test_seed_test_is_welchs_by_his_formula(rng):
    scores, baseline = rng.normal(1, 1, (3, 6, 2)), rng.normal(0, 3, (4, 6, 2))
    p_values = seed_test(scores, baseline)
    for measure in range(2):
        one, other = scores[:, :, measure].mean(1), baseline[:, :, measure].mean(1)
        a, b = one.var(ddof=1) / 3, other.var(ddof=1) / 4
        t = (one.mean() - other.mean()) / math.sqrt(a + b)
        freedom = (a + b) ** 2 / (a**2 / 2 + b**2 / 3)
        assert math.isclose(p_values[measure], 2 * stdtr(freedom, -abs(t)))


def test_seed_test_against_fixed_outputs_and_without_enough_seeds():
    scores, fixed = np.array([[[2.0]], [[3.0]], [[5.0]]]), np.array([[[1.0]]])
    t = (10 / 3 - 1) / math.sqrt(((2 - 10 / 3) ** 2 + (3 - 10 / 3) ** 2 + (5 - 10 / 3) ** 2) / 2 / 3)
    assert math.isclose(seed_test(scores, fixed, (False, True))[0], 2 * stdtr(2, -t))
    assert math.isclose(seed_test(fixed, scores, (True, False))[0], 2 * stdtr(2, -t))
    assert np.isnan(seed_test(scores, fixed)).all()  # a trained system with one seed
    assert np.isnan(seed_test(fixed, fixed, (True, True))).all()
    assert seed_test(scores[:2] * 0, scores[1:] * 0)[0] == 1.0  # all equal


def test_a_document_that_lacks_a_score_in_one_run_is_left_out(rng):
    scores, baseline = rng.random((2, 8, 1)), rng.random((3, 8, 1))
    without = hierarchical_bootstrap(scores[:, :5], baseline[:, :5], resamples=20_000)[0]
    seeds = seed_test(scores[:, :5], baseline[:, :5])[0]
    scores[1, 5:7] = np.nan
    baseline[2, 7] = np.nan
    assert abs(hierarchical_bootstrap(scores, baseline, resamples=20_000)[0] - without) < 0.05
    assert math.isclose(seed_test(scores, baseline)[0], seeds)
    assert math.isclose(system_interval(scores).mean[0], scores[:, [0, 1, 2, 3, 4, 7]].mean())
    baseline[:] = np.nan
    assert np.isnan(hierarchical_bootstrap(scores, baseline, resamples=10)).all()


def test_resamples_without_a_scored_document_are_no_evidence():
    scores = np.full((1, 30, 1), np.nan)
    scores[0, 4] = 1.0
    p_value = hierarchical_bootstrap(scores, np.zeros_like(scores), resamples=20_000)[0]
    assert abs(p_value - (29 / 30) ** 30) < 0.02  # the probability that none of 30 draws is that document


def rejections(difference: float, seeds: int, seed_noise: float, documents: int = 200) -> tuple[float, float]:
    """Return how often both tests, and a z-test over documents alone, reject at 5 % in simulated comparisons.

    Each system's score of a document: its mean, a document's share (deviation 12, the same for both systems), a seed's
    share, and what is peculiar to system and document (3) and to a run on a document (6). With 200 documents, the
    deviation of a run's mean that comes from the last two alone is 0.5; results tables show 0.1 to 1.7.
    """
    rng = np.random.default_rng(11)
    both, documents_alone = 0, 0
    for _ in range(SIMULATIONS):
        common = rng.normal(30, 12, (1, documents))
        systems = [
            mean
            + common
            + rng.normal(0, 3, (1, documents))
            + rng.normal(0, seed_noise, (seeds, 1))
            + rng.normal(0, 6, (seeds, documents))
            for mean in (0.0, difference)
        ]
        baseline, scores = (system[:, :, None] for system in systems)
        over_seeds = seed_test(scores, baseline)[0]
        both += bool(over_seeds < 0.05 and hierarchical_bootstrap(scores, baseline, resamples=200)[0] < 0.05)
        differences = systems[1].mean(0) - systems[0].mean(0)
        documents_alone += abs(differences.mean()) > 1.96 * differences.std(ddof=1) / math.sqrt(documents)
    return both / SIMULATIONS, documents_alone / SIMULATIONS


@pytest.mark.parametrize("seed_noise", [0.0, 0.3, 1.0, 1.7])
@pytest.mark.parametrize("seeds", [3, 5])
def test_systems_that_do_not_differ_are_rarely_told_apart(seeds, seed_noise):
    both, documents_alone = rejections(0.0, seeds, seed_noise)
    # the standard error of a rate of 5 % in 300 simulations is 1.3 %
    assert both <= 0.05 + 2 * 0.013
    if seed_noise >= 1:
        assert documents_alone > 0.25  # what the test over documents alone did


@pytest.mark.parametrize(("seeds", "seed_noise", "least"), [(3, 0.3, 0.85), (5, 1.0, 0.85), (3, 1.0, 0.35)])
def test_a_real_difference_is_found(seeds, seed_noise, least):
    both, _ = rejections(3.0, seeds, seed_noise)
    assert both > least
