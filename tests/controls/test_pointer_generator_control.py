"""Slow: what copying, coverage and rewards do, on documents in which each is needed."""

from pathlib import Path

import pytest
from pytorch_lightning import Callback, Trainer, seed_everything
from pytorch_lightning.cli import instantiate_class

from experiments.run_folder import build
from experiments.sweeping.grid import compose, read_sweep

SWEEPS = Path(__file__).parents[2] / "experiments" / "sweeps" / "controls"
QUIET = {
    "accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
    "enable_model_summary": False, "use_distributed_sampler": False,
}  # fmt: skip

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("controls")


def instance(description: dict) -> object:
    """An object of a class path and arguments, which may be such descriptions themselves."""
    arguments = description.get("init_args") or {}
    made = {k: instance(v) if isinstance(v, dict) and "class_path" in v else v for k, v in arguments.items()}
    return instantiate_class((), {"class_path": description["class_path"], "init_args": made})


def scores(sweep: str, cache: Path, *points: str) -> dict[str, dict[str, float]]:
    """Test scores of points of a control's sweep, trained with seed 1 as the sweep says."""
    results = {}
    for point in compose(read_sweep(SWEEPS / f"{sweep}.yaml")):
        name, config = point.label.split(" ")[0], point.config
        if name not in points or config["seed_everything"] != 1:
            continue
        config["data"]["init_args"]["cache_dir"] = str(cache)
        seed_everything(1, verbose=False)
        model, data = build(config)
        optimizer = config["optimizer"]
        model.configure_optimizers = lambda m=model, o=optimizer: instantiate_class(m.parameters(), o)
        callbacks: list[Callback] = [instance(callback) for callback in config["trainer"]["callbacks"] or []]
        limits = {name: config["trainer"][name] for name in ("max_steps", "gradient_clip_val")}
        Trainer(**limits, **QUIET, callbacks=callbacks, limit_val_batches=0).fit(model, data)
        results[name] = Trainer(**QUIET).test(model, data, verbose=False)[0]
    assert results.keys() == set(points)
    return results


def test_rare_names_are_copied_only_by_a_pointer(cache):
    found = scores("pointer", cache, "on", "off")
    assert found["on"]["test/rouge1"] > 80
    assert found["off"]["test/rouge1"] < 55, "half of the names are in no vocabulary"


def test_likelihood_keeps_the_flaw_of_its_references_and_rewards_mend_it(cache):
    """Four of five references lack the last name, which costs a summary 14 points of ROUGE-L."""
    found = scores("self_critical", cache, "likelihood", "greedy", "leave_one_out")
    assert found["likelihood"]["test/rougeL"] < 88
    assert found["greedy"]["test/rougeL"] > 95 and found["leave_one_out"]["test/rougeL"] > 95


def test_coverage_keeps_attention_from_going_round_in_circles(cache):
    """The three seeds of the sweep differ by 6.6 to 7.9 points of ROUGE-2."""
    found = scores("coverage", cache, "start", "off")
    assert found["start"]["test/rouge2"] > found["off"]["test/rouge2"] + 3
