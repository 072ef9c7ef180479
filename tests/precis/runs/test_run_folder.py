import fcntl
import json
import subprocess
from functools import wraps
from unittest.mock import Mock

import pytest
import torch
from conftest import change_config, read_metrics, write
from pytorch_lightning import Trainer
from run_folders import make_run

from datamodules.documents import UserError
from precis.runs import run_folder as module
from precis.runs.metrics_file import RunCSVLogger
from precis.runs.run_folder import best_checkpoint, environment, load_run, read_checkpoint, run_documents
from precis.runs.run_state import LOCK, read_state, write_state


def log(folder, *rows: tuple[int, dict[str, float]]) -> RunCSVLogger:
    logger = RunCSVLogger(folder)
    for step, metrics in rows:
        logger.log_metrics(metrics, step)
    logger.save()
    return logger


def test_a_second_logger_continues_and_the_environment_is_told_without_git(tmp_path, monkeypatch):
    logger = log(tmp_path, *((step, {"a": float(step)}) for step in range(6)))
    logger.keep_rows_of({"metrics": {"rows": 4}})
    assert [row["step"] for row in read_metrics(tmp_path)] == ["0", "1", "2", "3"]
    log(tmp_path, (4, {"a": 40.0, "b": 4.0}))
    columns = {name: [row[name] for row in read_metrics(tmp_path)] for name in ("step", "a", "b")}
    expected = {"step": [*"01234"], "a": ["0.0", "1.0", "2.0", "3.0", "40.0"], "b": ["", "", "", "", "4.0"]}
    assert columns == expected and [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]
    RunCSVLogger(tmp_path / "none").keep_rows_of({"metrics": {"rows": 3}})
    assert not (tmp_path / "none").exists()
    told = environment()
    assert told["git_commit"] is None or len(told["git_commit"]) == 40
    monkeypatch.setattr(subprocess, "run", Mock(side_effect=FileNotFoundError("git")))
    without = environment()
    assert without["git_commit"] is None and without["corpus"] == {}
    assert set(without["versions"]) <= set(module.PACKAGES) and without["versions"]["torch"] == torch.__version__
    json.dumps(without)


def test_a_checkpoint_and_changes_of_the_data_may_be_named_and_the_best_one_else_the_last_is_taken(run_folder):
    best, last = (run_folder / "checkpoints" / f"{name}.ckpt" for name in ("best", "last"))
    run = load_run(run_folder, last, eval_batch_size=5, max_eval=6)
    weights = read_checkpoint(last)["state_dict"]
    assert all(torch.equal(tensor, weights[name]) for name, tensor in run.model.state_dict().items())
    assert not run.model.training and run.model.coverage_gate == 1.0
    assert [len(batch.ids) for batch in run.data.test_dataloader()] == [5, 1]

    # documents beyond the limit of the run are found
    every = list(run_documents(run_folder, "test")["id"])
    change_config(run_folder / "config.yaml", {"data.init_args.max_eval": 1})
    assert len(every) > 1 and list(run_documents(run_folder, "test")["id"]) == every

    assert best_checkpoint(run_folder) == best
    best.unlink()
    assert best_checkpoint(run_folder) == last
    last.unlink()
    with pytest.raises(UserError, match="no checkpoint there; let the run train until"):
        best_checkpoint(run_folder)


def test_runs_are_listed_with_their_scores_and_a_broken_config_is_named(tmp_path, precis):
    one = make_run(tmp_path / "one", [], curve={"val/rouge1": [10.0, 30.0, 20.0]})
    two = make_run(tmp_path / "grid" / "two", [], curve={"val/rouge1": [5.0]})
    (tmp_path / "notes").mkdir()
    write(tmp_path / "notes" / "config.yaml", "a: 1\n")  # of no run

    def listed() -> dict[str, dict]:
        return {row["run"]: row for row in map(json.loads, precis("runs", tmp_path, "--json").out.splitlines())}

    assert set(listed()) == {str(one), str(two)}
    first = listed()[str(one)]
    assert (first["model"], first["best"], first["step"]) == ("PointerGenerator", 30.0, 21)
    assert first["state"] == "unknown"
    write(two / "results.json", "[]")  # of another program
    for broken in ("a: [", "model: {class_path: a.B}\ncheckpoint: 3\n"):
        write(one / "config.yaml", broken)
        assert {run: bool(row["problem"]) for run, row in listed().items()} == {str(one): True, str(two): False}
    precis("runs", tmp_path).succeeded()


@pytest.mark.integration
def test_training_records_its_end_and_a_run_whose_lock_is_free_was_killed(tiny_config, tmp_path, precis, monkeypatch):
    run = make_run(tmp_path / "one", [])
    write_state(run, "running", 3)
    assert read_state(run) == {"state": "killed", "step": 3}
    with (run / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert read_state(run)["state"] == "running"

    fit = Trainer.fit
    for error, state in ((SystemExit(143), "stopped"), (ValueError("no"), "failed")):

        @wraps(fit)
        def end(*arguments, error=error, **options):
            fit(*arguments, **options)
            raise error

        monkeypatch.setattr(Trainer, "fit", end)
        run = tmp_path / state
        assert precis("fit", "--config", tiny_config, "--run_dir", run, "--trainer.max_steps=5").status != 0
        assert read_state(run) == {"state": state, "step": 5}
