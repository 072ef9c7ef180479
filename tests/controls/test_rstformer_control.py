"""Slow: a model that generates the sentence which a planted tree makes the summary, and its matched controls."""

import pytest

from experiments.controls.points import run_point, sweep_points


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_only_the_document_s_own_tree_tells_the_summary(tmp_path):
    arms = ("led", "log_bias", "other")
    points = [point for point in sweep_points("rstformer") if point.arm in arms and point.seed == 1]
    rouge = {point.arm: run_point(point, tmp_path)["test/rouge1"] for point in points}
    assert rouge["log_bias"] > max(rouge["led"], rouge["other"]) + 25
