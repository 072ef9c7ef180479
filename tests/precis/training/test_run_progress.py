"""What a run says of itself without a terminal, in state.json and in a dry run."""

import pytest
from conftest import contents

from precis.runs.run_state import read_state
from precis.training import run_progress

pytestmark = pytest.mark.integration


def test_a_refused_resume_changes_nothing(run_folder, precis):
    before = contents(run_folder)
    done = precis("fit", "--run", run_folder, "--model.hidden_size=16", "--trainer.max_epochs=3")
    assert done.status == 1 and "the checkpoint does not fit the model" in done.err
    assert contents(run_folder) == before
    assert read_state(run_folder) == {"state": "finished", "step": 14}


def test_lines_and_steps_without_a_terminal(tiny_config, tmp_path, precis, caplog, monkeypatch):
    steps = []
    monkeypatch.setattr(run_progress, "write_state", lambda run, state, step: steps.append((state, step)))
    monkeypatch.setattr(run_progress, "INTERVAL", 0.0)
    run = tmp_path / "run"
    assert precis("fit", "--config", tiny_config, "--run_dir", run, "--trainer.enable_progress_bar=true").status == 0
    assert precis("test", "--run", run).status == 0
    lines = [record.getMessage() for record in caplog.records]
    training = ("training: 7 batches per epoch", "epoch 1: batch 7 of 7, step 14, train/loss ")
    for start in (*training, "validation: batch 2 of 2", "validation after step 14, val/loss ", "test: batch 2 of 2"):
        assert any(line.startswith(start) for line in lines), start
    running = [step for state, step in steps if state == "running"]
    assert sorted(set(running)) == [*range(15)] and steps[-1] == ("finished", 14)


def test_a_dry_run_reports_shapes_and_steps_and_writes_nothing(tiny_config, tmp_path, precis, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = precis("fit", "--config", tiny_config, "--run_dir", "runs/dry", "--dry-run").succeeded()
    assert list(tmp_path.iterdir()) == []
    assert "batch.source" in done.out and "[4, " in done.out
    assert "7 per epoch, 14 in all" in done.out  # 26 documents in batches of 4, two epochs
    assert "a validation" in done.out


def test_accumulated_batches_are_one_step_and_limits_count(tiny_config, tmp_path, precis, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, steps in (
        (["--trainer.accumulate_grad_batches=2", "--trainer.max_steps=5", "--trainer.max_epochs=-1"], "4 per epoch, 5"),
        (["--trainer.limit_train_batches=0.5"], "3 per epoch, 6"),
    ):
        assert f"{steps} in all" in precis("fit", "--config", tiny_config, "--dry-run", *arguments).succeeded().out


def test_an_existing_run_is_left_as_it_is(run_folder, precis):
    before = contents(run_folder)
    assert precis("fit", "--run", run_folder, "--dry-run").status == 0
    assert contents(run_folder) == before
    precis("test", "--run", run_folder, "--dry-run").refused("--dry-run")
