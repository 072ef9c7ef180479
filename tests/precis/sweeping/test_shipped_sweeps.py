"""Shipped sweep files: each can be composed, and matched rows differ in nothing but what they compare."""

import copy
from pathlib import Path

import pytest

from precis.sweeping.composition import compose
from precis.sweeping.grid import read_sweep
from precis.sweeping.search import compose_search

SWEEPS = Path(__file__).parents[3] / "experiments" / "sweeps"
SHIPPED = sorted(SWEEPS.rglob("*.yaml"))


@pytest.mark.integration
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


ARTICLES = "runs/cnndm_agents_messages/messages_seed-2_cfa44bfa"
ARTICLES_ONE_AGENT = "runs/cnndm_agents_messages/one_seed-2_fd2295e2"
ROWS_OF_AGENTS = {
    "aeslc_agents_self_critical": {
        "m1": ("runs/aeslc_m1", 1, False, 0),
        "m3": ("runs/aeslc_m1", 1, False, 1),
        "m5": ("runs/aeslc_m5", 3, False, 0),
        "m6": ("runs/aeslc_m5", 3, False, 1),
        "m6-temperature": ("runs/aeslc_m5", 3, False, 1),
        "m6-samples": ("runs/aeslc_m5", 3, False, 1),
        "m7": ("runs/aeslc_m5", 3, True, 1),
    },
    "cnndm_agents_self_critical": {
        "m1": (ARTICLES_ONE_AGENT, 1, False, 0),
        "m3": (ARTICLES_ONE_AGENT, 1, False, 1),
        "m5": (ARTICLES, 3, False, 0),
        "m6": (ARTICLES, 3, False, 1),
    },
}


@pytest.mark.parametrize("sweep", ROWS_OF_AGENTS)
def test_rows_of_agents_differ_in_agents_rewards_and_start_alone(sweep):
    rows, rest = {}, []
    for point in compose(read_sweep(SWEEPS / f"{sweep}.yaml")):
        config = copy.deepcopy(point.config)
        arguments = config["model"]["init_args"]
        agents, contextual = arguments.pop("agents"), arguments.pop("contextual_agent_attention")
        rewards = len(config["trainer"].pop("callbacks") or [])
        rows[point.label.split()[0]] = (config.pop("start_from"), agents, contextual, rewards)
        config.pop("seed_everything")
        rest.append(config)
    assert rows == ROWS_OF_AGENTS[sweep]
    assert all(config == rest[0] for config in rest)
