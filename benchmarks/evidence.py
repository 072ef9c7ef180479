"""Error rate and power of the tests of `precis compare` and `precis.evaluation.likelihood`, in simulations.

    python -m benchmarks.evidence

A score is the sum of what a system, a document (deviation 12, the same for all systems), a system on a document (3), a
run (the noise between seeds) and a run on a document (6) contribute. In the first table the noise between seeds is a
multiple of the deviation of a run's mean that the documents contribute, without the 12 that all systems share. Since
p is below 0.05 where the interval excludes 0, intervals cover the true value in all other cases.
"""

import numpy as np

from benchmarks.measuring import print_table
from precis.statistics.significance import SIGNIFICANT, Difference, mean_difference, paired_difference
from precis.statistics.statistics import Array

REPETITIONS = 2000  # simulations of each setting; a share of 5 % has a standard error of 0.5 points
GAINS = (0.5, 1.0, 2.0, 3.0)  # true differences between two systems
DOCUMENT, SYSTEM_ON_DOCUMENT, RUN_ON_DOCUMENT = 12, 3, 6  # standard deviations of contributions to a score


def simulate(seeds: int, documents: int, seed_noise: float, *means: float) -> list[Array]:
    """Return scores [seeds, documents, repetitions] for each of `means`; `seed_noise` is the deviation of runs."""
    rng = np.random.default_rng(0)
    of_documents = rng.normal(0, DOCUMENT, (documents, REPETITIONS))  # shared by all systems
    systems = []
    for mean in means:
        of_system = mean + of_documents + rng.normal(0, SYSTEM_ON_DOCUMENT, (documents, REPETITIONS))
        of_seeds = rng.normal(0, seed_noise, (seeds, 1, REPETITIONS))
        systems.append(of_system + of_seeds + rng.normal(0, RUN_ON_DOCUMENT, (seeds, documents, REPETITIONS)))
    return systems


def rejected(difference: Difference) -> float:
    """Return the share of simulations in which a test is significant; `p` has the p-value of each."""
    return float((difference.p < SIGNIFICANT).mean())


def main() -> None:
    """Print how often tests find a difference between equal systems, and then a true difference (their power)."""
    rows, documents = [], 200
    of_mean = np.sqrt((SYSTEM_ON_DOCUMENT**2 + RUN_ON_DOCUMENT**2) / documents)  # deviation of a run's mean
    for seeds in (2, 3, 5, 10):
        for multiple in (0, 0.5, 1, 2, 5):
            scores, baseline = simulate(seeds, documents, multiple * of_mean, 0.0, 0.0)
            independent, paired = mean_difference(scores, baseline), paired_difference(scores, baseline)
            one_system = paired_difference(scores, np.zeros_like(scores))  # against the true mean, 0
            shares = [f"{100 * rejected(test):.1f} %" for test in (independent, paired, one_system)]
            rows.append([seeds, multiple, *shares])
    print_table(["seeds", "noise between seeds", "independent runs", "runs paired by seed", "one system"], rows)

    rows = []  # 500 documents each
    for seeds in (3, 5, 10):
        for noise in (0.3, 1.0):
            tests = (mean_difference(*simulate(seeds, 500, noise, gain, 0.0)) for gain in GAINS)
            rows.append([seeds, noise, *(f"{100 * rejected(test):.0f} %" for test in tests)])
    print_table(["seeds", "deviation between seeds", *(f"difference of {gain}" for gain in GAINS)], rows)


if __name__ == "__main__":
    main()
