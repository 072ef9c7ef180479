"""Slow: GraphSum finds by its graph what only the graph knows, and by nothing else."""

import pytest

from experiments.studies.controls.points import run_point, sweep_points


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_only_the_right_graph_tells_the_answer(tmp_path):
    """Three seeds of the sweep lie within 5 points of each other; the margins here are twice that and more."""
    arms = ("scaled", "permuted", "none")
    points = [point for point in sweep_points("graphsum") if point.arm in arms and point.seed == 1]
    right = {point.arm: run_point(point, tmp_path)["test/rouge1"] for point in points}
    assert right["scaled"] > 65
    assert right["scaled"] > right["permuted"] + 12 and right["scaled"] > right["none"] + 12
