"""Shipped sweep files: each can be composed, and matched rows differ in nothing but what they compare."""

import copy
from pathlib import Path

import pytest

from precis.sweeping.composition import compose
from precis.sweeping.grid import read_sweep
from precis.sweeping.search import compose_search

pytestmark = pytest.mark.integration

SWEEPS = Path(__file__).parents[3] / "experiments" / "sweeps"
SHIPPED = sorted(SWEEPS.rglob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_shipped_sweep_can_be_composed(path):
    sweep = read_sweep(path)
    points = compose_search(sweep) if sweep.search else compose(sweep)
    if sweep.search:  # its points have no folders before they are drawn
        assert all(point.config["model"] for point in points)
        return
    assert len({point.name for point in points}) == len(points) > 1


def test_rows_of_the_papers_table_differ_in_their_mechanism_alone():
    """Documents, order, steps, lengths, learning rates and decoding of the three rows are equal, for each seed."""
    mechanisms, rest = {}, {}
    for point in compose(read_sweep(SWEEPS / "cnndm_rows.yaml")):
        config = copy.deepcopy(point.config)
        model, callbacks = config["model"]["init_args"], config["trainer"]["callbacks"]
        annealing = [callback for callback in callbacks if callback["class_path"] == "callbacks.CoverageAnnealing"]
        mechanisms[point.label.split()[0]] = (model.pop("pointer"), model.pop("coverage"), len(annealing))
        for callback in annealing:
            assert 0 < callback["init_args"]["start_step"] < config["trainer"]["max_steps"]
            callbacks.remove(callback)
        config.pop("start_from")
        rest.setdefault(config["seed_everything"], []).append(config)
    assert mechanisms == {"attention": (False, False, 0), "pointer": (True, False, 0), "coverage": (True, True, 1)}
    for rows in rest.values():
        assert rows[0] == rows[1] == rows[2]


PERMUTED = {"class_path": "datamodules.graphs.PermutedSimilarity", "init_args": {"scaled": True}}
GRAPHS = [{"graph": "scaled_similarity"}, {"graph": PERMUTED}, {"graph": "none"}]
MECHANISMS = {
    ("cnndm_agents", "model"): [
        {"agents": 1, "communication": True},
        {"agents": 3, "communication": False},
        {"agents": 3, "communication": True},
        {"agents": 5, "communication": False},
    ],
    ("cnndm_clusters", "data"): GRAPHS,
    ("cnndm_clusters_minilm", "data"): GRAPHS,
    ("scisummnet_graph", "data"): GRAPHS,
    ("scisummnet_graph_minilm", "data"): GRAPHS,
}


@pytest.mark.parametrize(("sweep", "section"), MECHANISMS)
def test_arms_on_real_text_differ_in_their_mechanism_alone(sweep, section):
    points = compose(read_sweep(SWEEPS / f"{sweep}.yaml"))
    for seed in {point.config["seed_everything"] for point in points}:
        configs = [copy.deepcopy(point.config) for point in points if point.config["seed_everything"] == seed]
        for config, mechanism in zip(configs, MECHANISMS[sweep, section], strict=True):
            arguments = config[section]["init_args"]
            assert {name: arguments.pop(name) for name in mechanism} == mechanism
            config.pop("start_from")
        assert all(config == configs[0] for config in configs)
