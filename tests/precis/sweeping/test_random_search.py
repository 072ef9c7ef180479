"""Random search in sweep files: draws within their limits, crossed with seeds, without duplicates."""


import pytest
from test_sweep import write_sweep

from datamodules.documents import UserError
from precis.sweeping.composition import compose
from precis.sweeping.grid import points_of, read_sweep


def random_part(budget: int, **keys) -> dict:
    return {"budget": budget, "keys": keys or {"model.dropout": {"uniform": [0.0, 0.5]}}}


def test_draws_are_in_their_limits_and_a_greater_budget_keeps_the_first_ones(tmp_path, tiny_config):
    spaces = {
        "model.dropout": {"uniform": [0.1, 0.5]},
        "optimizer.lr": {"log_uniform": [1e-4, 1e-2]},
        "model.hidden_size": {"integer": [8, 12]},
        "model.coverage": [True, False],
    }
    few, many = (
        points_of(read_sweep(write_sweep(tmp_path, tiny_config, random={"budget": budget, "seed": 1, "keys": spaces})))
        for budget in (5, 300)
    )
    assert [point.overrides for point in few] == [point.overrides for point in many[:5]]
    assert len(many) == 300
    drawn = {key: [point.overrides[key] for point in many] for key in spaces}
    assert all(0.1 <= value <= 0.5 for value in drawn["model.dropout"])
    assert all(1e-4 <= value <= 1e-2 for value in drawn["optimizer.lr"])
    assert sum(value < 1e-3 for value in drawn["optimizer.lr"]) == pytest.approx(150, abs=45)  # half, on a log scale
    assert set(drawn["model.hidden_size"]) == {8, 9, 10, 11, 12} and set(drawn["model.coverage"]) == {True, False}
    other = points_of(read_sweep(write_sweep(tmp_path, tiny_config, random=random_part(5) | {"seed": 2})))
    assert [p.overrides["model.dropout"] for p in other] != drawn["model.dropout"][:5]


def test_draws_are_crossed_with_seeds_and_duplicate_draws_occur_once(tmp_path, tiny_config):
    path = write_sweep(tmp_path, tiny_config, random=random_part(40, **{"model.coverage": [True, False]}), seeds=[1, 2])
    points = compose(read_sweep(path))
    assert len(points) == 4 and len({point.name for point in points}) == 4
    assert {point.config["seed_everything"] for point in points} == {1, 2}


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"budget": 0, "keys": {"model.dropout": [1]}}, "budget must be a whole number, at least 1; got 0"),
        ({"budget": 2, "keys": {}}, "keys must map config keys to distributions"),
        ({"budget": 2, "sed": 1, "keys": {"model.dropout": [1]}}, "unknown key 'sed'"),
        (random_part(2, **{"model.dropout": {"normal": [0, 1]}}), "must be a list, or one of uniform"),
        (
            random_part(2, **{"model.dropout": {"uniform": [0.5, 0.1]}}),
            "uniform needs two numbers, the lower one first",
        ),
        (random_part(2, **{"optimizer.lr": {"log_uniform": [0, 1]}}), "log_uniform needs two numbers above 0"),
        (random_part(2, **{"model.hidden_size": {"integer": [1.5, 3]}}), "integer needs whole numbers"),
        (random_part(2, **{"model.dropout": []}), "must be a list with a value at least"),
    ],
)
def test_a_wrong_random_part_is_named(part, said, tmp_path, tiny_config):
    path = write_sweep(tmp_path, tiny_config, random=part)
    with pytest.raises(UserError) as raised:
        read_sweep(path)
    assert str(raised.value).startswith(f"{path}: random") and said in str(raised.value)
