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

REPETITIONS = 2000
GAINS = (0.5, 1.0, 2.0, 3.0)


def simulate(seeds: int, documents: int, seed_noise: float, *means: float) -> list[Array]:
    """Return scores of systems with these true means, [seeds, documents, repetitions] each."""
    rng, repetitions = np.random.default_rng(0), REPETITIONS
    of_documents = rng.normal(0, 12, (documents, repetitions))
    systems = []
    for mean in means:
        of_system = mean + of_documents + rng.normal(0, 3, (documents, repetitions))
        of_seeds = rng.normal(0, seed_noise, (seeds, 1, repetitions))
        systems.append(of_system + of_seeds + rng.normal(0, 6, (seeds, documents, repetitions)))
    return systems


def rejected(difference: Difference) -> float:
    """Return the share of simulations in which a difference is found."""
    return float((difference.p < SIGNIFICANT).mean())


def main() -> None:
    """Print how often differences are found that do not exist, and how often those that do."""
    rows = []
    for seeds in (2, 3, 5, 10):
        for multiple in (0, 0.5, 1, 2, 5):
            scores, baseline = simulate(seeds, 200, multiple * np.sqrt((3**2 + 6**2) / 200), 0.0, 0.0)
            paired, one = paired_difference(scores, baseline), paired_difference(scores, np.zeros_like(scores))
            shares = [f"{100 * rejected(test):.1f} %" for test in (mean_difference(scores, baseline), paired, one)]
            rows.append([seeds, multiple, *shares])
    print_table(["seeds", "noise between seeds", "independent runs", "runs paired by seed", "one system"], rows)

    rows = []
    for seeds in (3, 5, 10):
        for noise in (0.3, 1.0):
            tests = (mean_difference(*simulate(seeds, 500, noise, gain, 0.0)) for gain in GAINS)
            rows.append([seeds, noise, *(f"{100 * rejected(test):.0f} %" for test in tests)])
    print_table(["seeds", "deviation between seeds", *(f"difference of {gain}" for gain in GAINS)], rows)


if __name__ == "__main__":
    main()
