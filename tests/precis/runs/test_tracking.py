"""Records of a run at W&B, read from its offline files, have the values that the dashboards show."""

import json
from pathlib import Path

import pytest
import wandb
from conftest import contents, read_lines, read_metrics, run_main, write
from wandb_file import OfflineRun

from precis.runs.tracking import run_id

pytestmark = pytest.mark.integration

KEYS = {"WANDB_API_KEY": 5 * "01abcdef", "HF_TOKEN": "hf_" + 4 * "Zq7wXk9t", "OPENAI_API_KEY": "sk-" + 4 * "Jp3vRb8n"}


@pytest.fixture(scope="module")
def tracked(tmp_path_factory, tiny_config) -> Path:
    sweep = tmp_path_factory.mktemp("sweep")
    point = {"run": "first", "label": "copy seed_everything=3 coverage=true", "overrides": {}, "config": {}}
    write(sweep / "points.json", json.dumps({"sweep": "rows", "base": "x.yaml", "after": ["test"], "points": [point]}))
    run = sweep / "first"
    start = ["fit", f"--config={tiny_config}", f"--run_dir={run}", "--wandb=offline", "--previews=2"]
    with pytest.MonkeyPatch.context() as patch:
        for name, key in KEYS.items():
            patch.setenv(name, key)
        for arguments in ([*start, "--trainer.max_epochs=1"], ["fit", f"--run={run}", "--trainer.max_epochs=2"]):
            assert run_main(*arguments) == 0
        assert run_main("test", f"--run={run}") == 0
        wandb.teardown()  # its service writes a little later
    return run


def test_keys_are_in_no_file_and_three_commands_are_one_wandb_run_in_the_group_of_its_sweep(tracked):
    files, offline = contents(tracked), OfflineRun(tracked)
    assert any(path.suffix == ".wandb" for path in files) and tracked / "environment.json" in files
    assert [(path, name) for path in files for name, key in KEYS.items() if key.encode() in files[path]] == []
    assert len(list((tracked / "wandb").glob("offline-run-*"))) == 3
    assert offline.ids == {run_id(tracked)}
    assert (offline.group, offline.job_type) == ("rows", "copy coverage=true")
    assert set(offline.tags) == {"PointerGenerator", "copy coverage=true", "seed=3"}


def test_the_values_the_table_of_predictions_and_the_artifacts_equal_those_of_the_run_folder(tracked):
    offline, rows = OfflineRun(tracked), read_metrics(tracked)
    for key in ("train/loss", "train/grad_norm", "val/rouge1"):
        assert offline.history[key] == pytest.approx([float(row[key]) for row in rows if row[key]])
    lines = read_lines(tracked / "predictions.jsonl")
    mean = sum(line["scores"]["rouge1"] for line in lines) / len(lines)
    assert offline.summary["test/rouge1"] == pytest.approx(mean, rel=1e-5)
    signatures = json.loads((tracked / "predictions.signatures.json").read_text())
    assert offline.summary["signature/rouge1"] == signatures["rouge1"]
    assert all(value > 0 for value in offline.history["throughput/documents_per_second"])
    assert "throughput/documents_per_second" not in rows[0], "metrics.csv does not depend on the hour"
    (path,) = (tracked / "wandb").rglob("predictions_*.table.json")
    table = json.loads(path.read_text())
    assert table["columns"] == ["id", "reference", "summary", *lines[0]["scores"]]
    texts = [[line["id"], " ".join(line["references"][0]), " ".join(line["summary"])] for line in lines]
    assert [row[:3] for row in table["data"]] == texts
    kinds = dict(offline.artifacts)
    assert kinds["model"] == {"best.ckpt", "config.yaml", "environment.json", "text/vocabulary.json"}
    assert kinds["predictions"] == {"predictions.jsonl", "predictions.signatures.json"}
    staged = list((tracked / "wandb" / "data").rglob("*"))
    assert staged and not any(path.suffix == ".ckpt" for path in staged), "no second copy of the weights"
