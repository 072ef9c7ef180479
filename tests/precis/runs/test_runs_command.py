"""`precis runs`, and the states that `precis fit` records."""

import fcntl
import json
from functools import wraps

import pytest
from pytorch_lightning import Trainer
from run_folders import make_run

from precis.runs.run_state import LOCK, read_state, write_state


@pytest.fixture
def runs(tmp_path):
    """Two runs, one of them in a folder of its own, beside files that are no runs."""
    make_run(tmp_path / "one", [], curve={"val/rouge1": [10.0, 30.0, 20.0]})
    make_run(tmp_path / "grid" / "two", [], curve={"val/rouge1": [5.0]})
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "config.yaml").write_text("a: 1\n", encoding="utf-8")
    return tmp_path


def test_runs_are_listed_with_their_scores(runs, precis):
    done = precis("runs", runs, "--json")
    rows = {row["run"]: row for row in map(json.loads, done.out.splitlines())}
    assert set(rows) == {str(runs / "one"), str(runs / "grid" / "two")}
    one = rows[str(runs / "one")]
    assert (one["model"], one["best"], one["step"]) == ("PointerGenerator", 30.0, 21)
    assert one["state"] == "unknown"
    table = precis("runs", runs)
    assert table.status == 0 and "PointerGenerator" in table.out


@pytest.mark.parametrize("columns", ["80", "160"])
def test_no_word_is_broken_at_the_width_of_a_terminal(columns, runs, precis, monkeypatch):
    scores = {"test/rouge1": 26.67, "test/rouge2": 9.02, "test/rougeLsum": 24.38}
    (runs / "one" / "results.json").write_text(json.dumps({"scores": scores}), encoding="utf-8")
    monkeypatch.setenv("COLUMNS", columns)
    out = precis("runs", runs).out
    assert max(map(len, out.splitlines())) <= int(columns) and "…" not in out
    words = "one grid/two PointerGenerator unknown 21 val/rouge1 30.00 R-1/2/Lsum 26.67 24.38"
    assert set(words.split()) <= set(out.split())


def test_a_run_whose_lock_is_free_was_killed(tmp_path):
    run = make_run(tmp_path / "one", [])
    write_state(run, "running", 3)
    assert read_state(run) == {"state": "killed", "step": 3}
    with (run / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert read_state(run)["state"] == "running"
    write_state(run, "stopped", 4)
    assert read_state(run) == {"state": "stopped", "step": 4}


@pytest.mark.integration
def test_training_records_that_it_was_stopped_or_failed(tiny_config, tmp_path, precis, trusted, monkeypatch):
    fit = Trainer.fit
    for error, state in ((SystemExit(143), "stopped"), (ValueError("no"), "failed")):
        run = tmp_path / state

        @wraps(fit)
        def end(*arguments, error=error, **options):
            fit(*arguments, **options)
            raise error

        monkeypatch.setattr(Trainer, "fit", end)
        assert precis("fit", "--config", tiny_config, "--run_dir", run, "--trainer.max_steps=5").status != 0
        assert read_state(run) == {"state": state, "step": 5}


def test_a_broken_config_is_named_and_the_others_are_listed(runs, precis):
    (runs / "one" / "config.yaml").write_text("a: [", encoding="utf-8")
    rows = [json.loads(line) for line in precis("runs", runs, "--json").out.splitlines()]
    assert [bool(row["problem"]) for row in rows] == [False, True]
    assert precis("runs", runs).status == 0
