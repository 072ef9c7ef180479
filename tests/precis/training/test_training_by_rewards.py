"""The run that the page "Coming from trl" shows, through the command: what it writes, and a resumed run."""

import re
from pathlib import Path

import pytest
import yaml
from conftest import assert_same_checkpoints, read_lines, read_metrics, write

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[3] / "docs" / "coming_from" / "trl.md"


@pytest.fixture(scope="module")
def config(tiny_config, tmp_path_factory) -> Path:
    """The tiny config with the callback of the page."""
    (shown,) = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.S | re.M)
    content = yaml.safe_load(tiny_config.read_text(encoding="utf-8"))
    content["trainer"] |= yaml.safe_load(shown)["trainer"] | {"val_check_interval": 5}
    return write(tmp_path_factory.mktemp("rewards") / "config.yaml", content | {"previews": 2})


def test_a_run_that_is_resumed_between_two_updates_equals_one_that_is_not(config, tmp_path, precis):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    precis("fit", "--config", config, "--run_dir", whole, "--dry-run").succeeded()
    assert list(tmp_path.iterdir()) == []  # nor is a reference written
    precis("fit", "--config", config, "--run_dir", whole, "--trainer.max_steps", 8).succeeded()
    precis("fit", "--config", config, "--run_dir", parts, "--trainer.max_steps", 5).succeeded()
    precis("fit", "--run", parts, "--trainer.max_steps", 8).succeeded()
    assert_same_checkpoints(whole, parts)
    reference, resumed = ((run / "checkpoints" / "reference.ckpt").read_bytes() for run in (whole, parts))
    assert resumed == reference

    rows = [row for row in read_metrics(whole) if row.get("train/reward")]
    logged = {"kl", "clipped", "truncated", "no_signal", "reward_std", "reward/rougeL", "reward/LengthTarget"}
    assert len(rows) == 8 and all(rows[0][f"train/{name}"] for name in logged)
    assert float(rows[0]["train/kl"]) == 0 < float(rows[-1]["train/kl"])
    assert rows[0]["train/reward"] == rows[1]["train/reward"] != rows[2]["train/reward"]  # two updates

    (file,) = whole.glob("previews/step*/samples.jsonl")
    samples = read_lines(file)
    assert len(samples) == 8 and len({row["id"] for row in samples}) == 2  # four of each
    for row in samples:
        assert row["reward"] == pytest.approx(row["rougeL"] + 0.2 * row["LengthTarget"])
