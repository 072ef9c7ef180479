"""Slow: an agent that reads the values needs a message from the agent that reads the key."""

import pytest

from experiments.studies.controls.points import run_point, sweep_points


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_value_is_found_only_with_messages(tmp_path):
    """A guess among three values is right in 33 % of the documents; the standard error of 200 documents is 3.3."""
    arms = ("mean-3", "silent-3")
    points = [point for point in sweep_points("agents") if point.arm in arms and point.seed == 1]
    right = {point.arm: run_point(point, tmp_path)["test/rouge1"] for point in points}
    assert right["silent-3"] < 50 and right["mean-3"] > 80
