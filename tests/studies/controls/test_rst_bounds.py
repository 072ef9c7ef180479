"""What readers of a planted distribution can reach, where it can be computed otherwise."""

import math

import pytest

from experiments.studies.controls.rst_bounds import bounds
from experiments.studies.controls.rst_extraction import Noise


def test_one_tree_leaves_nothing_open():
    distribution, best_tree, sums = bounds(Noise(), documents=200)
    assert distribution == best_tree == (1.0, 0.0)
    assert sums.accuracy == 1.0 and sums.loss > 0.1, "two nuclei have the same sum, and the left one is the target"


def test_two_unrelated_trees():
    """P(p) = 1 for the larger of two probabilities, uniform in [1/2, 1]; both trees agree in one document of six."""
    count = 1500
    distribution, best_tree, sums = bounds(Noise(2), count)
    accuracy = 1 / 6 + 5 / 6 * 3 / 4
    margin = 4 * (1 / 12 / 4 / count) ** 0.5 + 4 * (1 / 4 * 5 / 36 / count) ** 0.5  # of P(p), and of agreement
    assert distribution.accuracy == pytest.approx(accuracy, abs=margin)
    assert best_tree.accuracy == pytest.approx(distribution.accuracy)
    # the mean entropy of (p, 1 - p) is 1/2 nat
    assert distribution.loss == pytest.approx(5 / 6 / 2, abs=4 * 0.3 / count**0.5)
    expected = -accuracy * math.log(accuracy) - (1 - accuracy) * math.log((1 - accuracy) / 5)
    assert best_tree.loss == pytest.approx(expected, abs=0.1)
    assert distribution.loss < sums.loss and sums.accuracy < distribution.accuracy


def test_where_trees_agree_on_the_target_sums_beat_the_best_tree():
    distribution, best_tree, sums = bounds(Noise(16, 0.7, 8.0), documents=400)
    assert distribution.loss < sums.loss < best_tree.loss - 0.1
    assert distribution.accuracy > best_tree.accuracy + 0.05 and sums.accuracy > best_tree.accuracy + 0.03
