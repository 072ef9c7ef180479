"""What a run says of itself without a terminal, in state.json and in a dry run."""

import pytest
from conftest import contents

from precis.runs.run_state import read_state
from precis.training import run_progress

pytestmark = pytest.mark.integration


def test_a_refused_resume_changes_nothing(run_folder, precis):
    before = contents(run_folder)
    done = precis("fit", "--run", run_folder, "--model.hidden_size=16", "--trainer.max_epochs=3")
    done.refused("the checkpoint does not fit the model")
    assert contents(run_folder) == before
    assert read_state(run_folder) == {"state": "finished", "step": 14}


def test_lines_and_steps_without_a_terminal(tiny_config, tmp_path, precis, caplog, monkeypatch):
    steps = []
    monkeypatch.setattr(run_progress, "write_state", lambda run, state, step: steps.append((state, step)))
    monkeypatch.setattr(run_progress, "INTERVAL", 0.0)
    run = tmp_path / "run"
    precis("fit", "--config", tiny_config, "--run_dir", run, "--trainer.enable_progress_bar=true").succeeded()
    precis("test", "--run", run).succeeded()
    lines = [record.getMessage() for record in caplog.records]
    training = ("training: 7 batches per epoch", "epoch 1: batch 7 of 7, step 14, train/loss ")
    for start in (*training, "validation: batch 2 of 2", "validation after step 14, val/loss ", "test: batch 2 of 2"):
        assert any(line.startswith(start) for line in lines), start
    running = [step for state, step in steps if state == "running"]
    assert sorted(set(running)) == [*range(15)] and steps[-1] == ("finished", 14)


def test_a_dry_run_reports_shapes_and_steps_and_writes_nothing(tiny_config, run_folder, tmp_path, precis, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = contents(tmp_path)
    for arguments, steps in (
        ([], "7 per epoch, 14"),  # 26 documents in batches of 4, two epochs
        (["--trainer.accumulate_grad_batches=2", "--trainer.max_steps=5", "--trainer.max_epochs=-1"], "4 per epoch, 5"),
        (["--trainer.limit_train_batches=0.5"], "3 per epoch, 6"),
    ):
        done = precis("fit", "--config", tiny_config, "--run_dir", "runs/dry", "--dry-run", *arguments).succeeded()
        for part in ("batch.source", "[4, ", f"{steps} in all", "a validation"):
            assert part in done.out
    precis("fit", "--run", run_folder, "--dry-run").succeeded()
    precis("test", "--run", run_folder, "--dry-run").refused("--dry-run")
    assert contents(tmp_path) == before and list(tmp_path.iterdir()) == [run_folder]
