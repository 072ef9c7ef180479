"""The section `search` of a sweep file: what it may say, and the values that follow from it."""

from pathlib import Path

import pytest
from conftest import write_sweep

optuna = pytest.importorskip("optuna")

from datamodules.documents import UserError  # noqa: E402
from precis.sweeping.grid import read_sweep  # noqa: E402
from precis.trials.search_space import extreme_points, suggest  # noqa: E402

LR = {"log_uniform": [1e-4, 1e-2]}


def write_search(folder: Path, base: Path, keys: dict, other: dict | None = None, **section) -> Path:
    """Write a sweep file with a search; `other` are its sections beside base and search."""
    return write_sweep(folder, base, **(other or {}), search={"trials": 3, "keys": keys} | section)


@pytest.mark.parametrize(("section", "message"), [
    ({"other": {"grid": {"model.coverage": [True]}}}, "grid beside search; a search only has base, set and search"),
    ({"other": {"set": {"model.dropout": 0.2}}}, "is in set and in search; keep one of them"),
    ({"trails": 5}, "search: unknown key 'trails'"),
    ({"metric": "test/rouge1"}, "search: metric must be one of the validation, such as val/rouge1"),
    ({"keys": {"optimizer.lr": LR | {"step": 0.1}}}, "step only goes with uniform and integer"),
    ({"keys": {"model.dropout": {"values": [0.1], "when": {"model.pointer": True}}}}, "that is listed before it"),
    ({"keys": {"a": [1, 2], "b": {"values": [1], "when": {"a": 3}}}}, "when: a is never 3; it is one of [1, 2]"),
])  # fmt: skip
def test_a_wrong_section_is_one_line(section, message, tmp_path, tiny_config):
    path = write_search(tmp_path, tiny_config, **({"keys": {"model.dropout": [0.1, 0.2]}} | section))
    with pytest.raises(UserError) as raised:
        read_sweep(path)
    text = str(raised.value)
    assert text.startswith(f"{path}: ") and message in text and "\n" not in text


def test_values_are_in_their_ranges_and_conditions_hold():
    keys = {
        "rate": LR, "dropout": {"uniform": [0.0, 0.5], "step": 0.1}, "size": {"integer": [4, 12], "step": 4},
        "batch": {"log_integer": [1, 64]}, "layers": [[1, 2], [3]],
        "coverage": [True, False], "weight": {"uniform": [1, 2], "when": {"coverage": True}},
    }  # fmt: skip
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    trials = [study.ask() for _ in range(60)]
    drawn = [suggest(trial, keys) for trial in trials]
    assert drawn == [suggest(trial, keys) for trial in trials]  # a trial that is taken up again keeps its values
    assert all(1e-4 <= values["rate"] <= 1e-2 for values in drawn)
    assert {round(values["dropout"], 6) for values in drawn} == {0.0, 0.1, 0.2, 0.3, 0.4, 0.5}
    assert {values["size"] for values in drawn} == {4, 8, 12}
    assert sum(values["batch"] < 8 for values in drawn) > 15  # half of a log scale; an eighth of a linear one
    assert [1, 2] in [values["layers"] for values in drawn]
    assert {values["coverage"] for values in drawn} == {True, False}
    assert all(("weight" in values) == values["coverage"] for values in drawn)
    # limits and choices are checked where their condition holds
    keys = {"a": [1, 2], "b": {"uniform": [0.0, 1.0], "when": {"a": 2}}}
    assert extreme_points(keys) == [{"a": 1}, {"a": 2}, {"a": 2, "b": 0.0}, {"a": 2, "b": 1.0}]
    assert extreme_points(keys | {"c": {"values": [3], "when": {"b": 1.0}}})[-1] == {"a": 2, "b": 1.0, "c": 3}
