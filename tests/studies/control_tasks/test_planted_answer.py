import pytest

from experiments.studies.controls.tasks.planted_answer import PlantedAnswer
from lightning_modules.metrics.rewards import RewardInputs

DOCUMENT = (
    "some words. its owner is called cid. its keeper is called ann. its guard is called dan. "
    "its painter is called bo."
)


@pytest.mark.parametrize(
    "text, reward",
    [
        ("ann. bo cid dan.", 1.0), ("ann bo cid dan.", 10 / 11), ("ann bo cid.", 8 / 10), ("Ann.", 4 / 8),
        ("dan cid", 2 / 8), ("nobody", 0.0), ("", 0.0),
    ],
)
def test_the_planted_names_in_their_order_are_rewarded(text, reward):
    """2 |common subsequence| / (|text| + |answer|), by hand; the flawed reference is not read."""
    written = RewardInputs(["x"], [text], [["ann bo cid."]], [DOCUMENT])
    assert PlantedAnswer()(written) == [pytest.approx(reward)]
