"""The control of RSTformer's encoder: what it measures, in small what it shows, and what its readers can reach."""

import json
import math
from unittest.mock import Mock

import pytest

from experiments.studies.controls.rst_bounds import bounds
from experiments.studies.controls.rst_extraction import ARMS, Noise, Outcome, main, train_arm
from lightning_modules.rstformer.injection import ABLATIONS, INJECTIONS

pytestmark = pytest.mark.integration


def test_arms_are_the_injections_and_controls_and_are_not_trained_again(tmp_path, capsys, monkeypatch):
    assert len({arm.name for arm in ARMS}) == len(ARMS)
    assert {arm.injection.get("formula", "log_bias") for arm in ARMS} == set(INJECTIONS)
    assert {arm.injection.get("ablation", "none") for arm in ARMS} == set(ABLATIONS)
    train = Mock(side_effect=lambda arm, seed, cache, steps: Outcome(seed / 10, 1.0))
    monkeypatch.setattr("experiments.studies.controls.rst_extraction.train_arm", train)
    arguments = ["--out", str(tmp_path / "arms.json"), "--arms", "[plain, log_bias]", "--seeds", "[1, 2]"]
    main(arguments)
    main([*arguments[:-1], "[1, 2, 3]"])
    trained = sorted((call.args[0].name, call.args[1]) for call in train.call_args_list)
    assert trained == [(name, seed) for name in ("log_bias", "plain") for seed in (1, 2, 3)]
    assert json.loads((tmp_path / "arms.json").read_text())["plain"]["3"] == [0.3, 1.0]
    assert "| plain | 0.200 | 0.100 to 0.300 | 1.000 |" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path / "arms.json"), "--arms", "[nothing]"])


@pytest.mark.slow
def test_the_document_s_own_tree_is_needed(tmp_path):
    """A guess is right in 1 / 6 of the documents, with a standard error of 0.02."""
    arms = {arm.name: arm for arm in ARMS}
    names = ("plain", "log_bias, other", "log_bias, permuted", "product", "log_bias")
    plain, other, permuted, *own = (train_arm(arms[name], 1, tmp_path).accuracy for name in names)
    assert max(plain, other) < 0.3 and min(own) > max(plain, other, permuted) + 0.2


def test_one_tree_leaves_nothing_open_and_sums_beat_the_best_of_several_that_agree_on_the_target():
    distribution, best_tree, sums = bounds(Noise(), documents=200)
    assert distribution == best_tree == (1.0, 0.0)
    assert sums.accuracy == 1.0 and sums.loss > 0.1, "two nuclei have the same sum, and the left one is the target"
    distribution, best_tree, sums = bounds(Noise(16, 0.7, 8.0), documents=400)
    assert distribution.loss < sums.loss < best_tree.loss - 0.1
    assert distribution.accuracy > best_tree.accuracy + 0.05 and sums.accuracy > best_tree.accuracy + 0.03
    # two unrelated trees: P(p) = 1 for the larger of two probabilities, uniform in [1/2, 1]; both agree in one of six
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
