"""Shipped sweep files: each can be composed, and matched rows differ in nothing but what they compare."""

import copy
from pathlib import Path

import pytest

from precis.sweeping.composition import compose
from precis.sweeping.grid import read_sweep
from precis.sweeping.search import compose_search

pytestmark = pytest.mark.integration

SWEEPS = Path(__file__).parents[3] / "experiments" / "sweeps"


@pytest.mark.parametrize("path", sorted(SWEEPS.rglob("*.yaml")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_shipped_sweep_can_be_composed(path):
    sweep = read_sweep(path)
    if sweep.search:  # its points have no folders before they are drawn
        assert all(point.config["model"] for point in compose_search(sweep))
    else:
        points = compose(sweep)
        assert len({point.name for point in points}) == len(points) > 1


def configs_by_seed(sweep: str) -> list[list[dict]]:
    """Return the configs of a sweep's points for each seed, without the runs that they start from."""
    by_seed = {}
    for point in compose(read_sweep(SWEEPS / f"{sweep}.yaml")):
        config = copy.deepcopy(point.config)
        config.pop("start_from")
        by_seed.setdefault(config["seed_everything"], []).append(config)
    return list(by_seed.values())


def test_rows_of_the_papers_table_differ_in_their_mechanism_alone():
    """Documents, order, steps, lengths, learning rates and decoding are equal, for each seed."""
    mechanisms = [(False, False, 0), (True, False, 0), (True, True, 1)]  # attention, pointer, coverage
    for configs in configs_by_seed("cnndm_rows"):
        for config, mechanism in zip(configs, mechanisms, strict=True):
            model, callbacks = config["model"]["init_args"], config["trainer"]["callbacks"]
            annealing = [callback for callback in callbacks if callback["class_path"] == "callbacks.CoverageAnnealing"]
            assert (model.pop("pointer"), model.pop("coverage"), len(annealing)) == mechanism
            for callback in annealing:
                assert 0 < callback["init_args"]["start_step"] < config["trainer"]["max_steps"]
                callbacks.remove(callback)
        assert all(config == configs[0] for config in configs)


PERMUTED = {"class_path": "datamodules.graphs.PermutedSimilarity", "init_args": {"scaled": True}}
GRAPHS = [{"graph": "scaled_similarity"}, {"graph": PERMUTED}, {"graph": "none"}]
AGENTS = [{"agents": agents, "communication": talk} for agents, talk in ((1, True), (3, False), (3, True), (5, False))]
GRAPH_SWEEPS = ("cnndm_clusters", "cnndm_clusters_minilm", "scisummnet_graph", "scisummnet_graph_minilm")


@pytest.mark.parametrize("sweep", ["cnndm_agents", *GRAPH_SWEEPS])
def test_arms_on_real_text_differ_in_their_mechanism_alone(sweep):
    section, mechanisms = ("data", GRAPHS) if sweep in GRAPH_SWEEPS else ("model", AGENTS)
    for configs in configs_by_seed(sweep):
        for config, mechanism in zip(configs, mechanisms, strict=True):
            arguments = config[section]["init_args"]
            assert {name: arguments.pop(name) for name in mechanism} == mechanism
        assert all(config == configs[0] for config in configs)
