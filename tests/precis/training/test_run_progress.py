"""What a run says of itself without a terminal, and in state.json."""

import pytest

from precis.runs.run_state import read_state
from precis.training import run_progress

pytestmark = pytest.mark.integration


def test_a_refused_resume_changes_nothing(run_folder, precis):
    before = {path: path.read_bytes() for path in run_folder.rglob("*") if path.is_file()}
    done = precis("fit", "--run", run_folder, "--model.hidden_size=16", "--trainer.max_epochs=3")
    assert done.status == 1 and "the checkpoint does not fit the model" in done.err
    assert {path: path.read_bytes() for path in run_folder.rglob("*") if path.is_file()} == before
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
