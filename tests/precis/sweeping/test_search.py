"""Searches: trials, workers that are killed, pruning, the best config. Runs are stand-ins but for one."""

import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Finished, contents, wait_until, write
from test_search_space import write_search

pytest.importorskip("optuna")

import optuna

from precis.sweeping import search as searching
from precis.sweeping.grid import read_sweep
from precis.training.training import fit_parser
from precis.trials.study import _pruner

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
KEYS = {"model.dropout": {"uniform": [0.0, 0.5]}, "model.coverage": [True, False]}
# Stand-in for `precis fit`: reports two validations; fails, or waits to be killed, where the folder says so.
STUB = """
import pathlib, sys, time, yaml
from precis.trials.search_folder import read_search
options = dict(word[2:].split("=", 1) for word in sys.argv[2:])
run = pathlib.Path(options["run_dir"])
number, search = int(run.name[-3:]), read_search(run.parent)
dropout = yaml.safe_load((run / "point.yaml").read_text())["model"]["init_args"]["dropout"]
if (run.parent / f"fail-{number}").exists():
    sys.exit("it broke")
if (run.parent / f"wait-{number}").exists():
    (run.parent / f"wait-{number}").unlink()
    (run / "waits").touch()
    time.sleep(300)
for step in (1, 2):
    if search.report(number, dropout * step, step):
        sys.exit(0)
search.record(number, "score", dropout * 2)
"""


@pytest.fixture
def stub(tmp_path, monkeypatch) -> list[str]:
    path = write(tmp_path / "stub.py", STUB)
    real = searching.Running
    command = [sys.executable, str(path)]
    monkeypatch.setattr(searching, "Running", lambda job, env, **more: real(job, env, command, **more))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return command


def make_search(tmp_path: Path, base: Path, **section) -> Path:
    sweep, out = read_sweep(write_search(tmp_path, base, KEYS, **section)), tmp_path / "out"
    searching.record_search(sweep, searching.compose_search(sweep)[0].config, out)
    return out


def status(out: Path, precis) -> dict:
    return json.loads(precis("sweep", "status", out, "--json").out)


def work(out: Path, worker: int, precis) -> Finished:
    return precis("sweep", "work", out, "--worker", worker)


def test_trials_are_run_recorded_and_the_best_is_a_config(tmp_path, tiny_config, precis, stub, monkeypatch):
    out = make_search(tmp_path, tiny_config, trials=4)
    assert work(out, 1, precis).succeeded().out.count("val/rouge1") >= 4
    told = status(out, precis)
    assert told["counts"] == {"complete": 4}
    by_hand = {row["trial"]: 2 * row["values"]["model.dropout"] for row in told["trials"]}
    assert {row["trial"]: row["score"] for row in told["trials"]} == pytest.approx(by_hand)
    winner = max(by_hand, key=by_hand.get)
    assert told["best"] == {"trial": winner, "score": pytest.approx(by_hand[winner])}
    parsed = fit_parser().parse_args([f"--config={out / 'best.yaml'}"])
    assert 2 * parsed.model.init_args.dropout == pytest.approx(by_hand[winner])
    monkeypatch.setenv("COLUMNS", "55")
    table, _, below = precis("sweep", "status", out).out.partition("4 of 4")
    assert f"in {out / 'best.yaml'}" in below and all(line[-1] in "┓┃┩│┘" for line in table.splitlines())  # none is cut
    work(out, 2, precis).succeeded()  # another worker has nothing to do, until there are more trials
    assert status(out, precis)["counts"] == {"complete": 4}
    make_search(tmp_path, tiny_config, trials=5)
    work(out, 2, precis).succeeded()
    assert [row["worker"] for row in status(out, precis)["trials"]] == [1, 1, 1, 1, 2]


def test_a_killed_worker_takes_up_its_trial_and_no_trial_is_counted_twice(tmp_path, tiny_config, precis, stub):
    out = make_search(tmp_path, tiny_config, trials=4)
    (out / "wait-1").touch()
    script = (
        "import sys; from precis.sweeping import search; real = search.Running\n"
        f"search.Running = lambda job, env, **more: real(job, env, {stub!r}, **more)\n"
        f"search.work([{str(out)!r}, '--worker=1'])"
    )
    worker = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, start_new_session=True, env=os.environ)
    wait_until((out / "trial-001" / "waits").exists, worker)
    values = json.loads((out / "points.json").read_text())["points"][1]["overrides"]
    assert status(out, precis)["counts"] == {"complete": 1, "running": 1}
    work(out, 1, precis).refused("worker 1 is running already")
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    assert status(out, precis)["counts"] == {"complete": 1, "interrupted": 1}

    work(out, 2, precis).succeeded()  # other workers leave the trial to its own
    assert status(out, precis)["counts"] == {"complete": 3, "interrupted": 1}
    for _ in range(2):
        work(out, 1, precis).succeeded()
        told = status(out, precis)
        assert told["counts"] == {"complete": 4} and [row["trial"] for row in told["trials"]] == [0, 1, 2, 3]
    assert told["trials"][1]["values"]["model.dropout"] == pytest.approx(values["model.dropout"])
    assert (out / "trial-001" / "log.txt").read_text().count("$ precis fit") == 2


def test_failures_are_recorded_and_a_worker_gives_up_after_three(tmp_path, tiny_config, precis, stub):
    out = make_search(tmp_path, tiny_config, trials=6)
    for number in (0, 2, 3, 4):
        (out / f"fail-{number}").touch()
    problem = "3 trials failed in a row, the last one is trial 4: fit failed: it broke; correct the cause"
    work(out, 1, precis).failed_in_one_line(problem)
    told = status(out, precis)
    assert told["counts"] == {"failed": 4, "complete": 1} and told["best"]["trial"] == 1
    work(out, 1, precis).succeeded()
    assert status(out, precis)["counts"] == {"failed": 4, "complete": 2}


def test_the_median_pruner_ends_trials_below_the_median(tmp_path, tiny_config, precis, stub):
    out = make_search(tmp_path, tiny_config, trials=8, sampler="random", pruner="median", startup=3, warmup=0)
    work(out, 1, precis).succeeded()
    rows, first = status(out, precis)["trials"], []
    for row in rows:  # by hand: the first validation against the median of the earlier ones
        value = row["values"]["model.dropout"]
        ended = sum(earlier["state"] == "complete" for earlier in rows[: row["trial"]])
        assert row["state"] == ("pruned" if ended >= 3 and value < statistics.median(first) else "complete")
        first.append(value)
    assert {row["state"] for row in rows} == {"complete", "pruned"}
    pruned = next(row["trial"] for row in rows if row["state"] == "pruned")
    assert json.loads((out / f"trial-{pruned:03}" / "state.json").read_text())["state"] == "pruned"


def test_a_folder_of_something_else_and_a_metric_that_is_not_computed_are_refused(tmp_path, tiny_config, precis):
    out = make_search(tmp_path, tiny_config)
    before, journal = contents(out), out / "search.journal"
    plain = write(tmp_path / "plain.yaml", {"base": str(tiny_config), "seeds": [1]})
    for keys, other, message in (
        ({"model.dropout": {"uniform": [0.0, 0.4]}}, {}, "is of a search with other keys, "),
        (KEYS, {"set": {"data.batch_size": 2}}, "is of a search from another base, or with another set"),
    ):
        path = write_search(tmp_path, tiny_config, keys, other)
        precis("sweep", path, "--out", out).failed_in_one_line(message)
    precis("sweep", plain, "--out", out).refused(f"{out}: has a search; pass another --out")
    assert contents(out) == before

    journal.unlink()
    precis("sweep", path, "--out", out).refused(f"{out}: has a sweep without search")
    work(out, 1, precis).refused(f"{out}: no search here")
    backend = optuna.storages.journal.JournalFileBackend(str(journal))
    optuna.create_study(study_name="other", storage=optuna.storages.JournalStorage(backend))
    precis("sweep", "status", out).refused(f"{journal}: of another study, other; pass another --out")
    for text in ("no journal\n", "{}\n", '{"op_code": 0, "worker'):
        journal.write_text(text)
        precis("sweep", "status", out).failed_in_one_line(f"{journal}: no journal of Optuna, or a")
    path = write_search(tmp_path, tiny_config, KEYS, metric="val/rouge9")
    precis("sweep", path, "--dry-run").refused("metric of a search) is 'val/rouge9', which this run does not log; it")


def test_workers_are_launched_where_optuna_is_installed(tmp_path, tiny_config, precis, monkeypatch):
    launched = []
    monkeypatch.setattr("precis.sweeping.sweep.launch", lambda jobs, slots: launched.append((jobs, slots)))
    path, out = write_search(tmp_path, tiny_config, KEYS), tmp_path / "out"
    assert "0 of 3 trials: none has started" in precis("sweep", path, "--out", out, "--jobs", 2).succeeded().out
    ((jobs, slots),) = launched
    assert slots == 2 and [job.stages() for job in jobs] == [
        [("3 trials", ["sweep", "work", str(out), f"--worker={number}"])] for number in (1, 2)
    ]
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.delitem(sys.modules, "precis.trials.study", raising=False)
    done = precis("sweep", path, "--out", tmp_path / "other")
    done.failed_in_one_line("a search needs optuna; pip install 'precis-suite[search]'")


@pytest.mark.parametrize("warmup", [0, 1, 2])
def test_no_trial_is_pruned_in_its_warm_up(warmup):
    study = optuna.create_study(pruner=_pruner({"pruner": "median", "startup": 0, "warmup": warmup}))
    study.add_trial(optuna.create_trial(value=0.0, intermediate_values={1: 0.0, 2: 0.0, 3: 0.0}))
    trial, pruned = study.ask(), []
    for validation in (1, 2, 3):
        trial.report(1.0, validation)  # worse than the other trial
        pruned.append(trial.should_prune())
    assert pruned == [validation > warmup for validation in (1, 2, 3)]


def test_a_real_run_reports_and_ends_where_it_is_pruned(tmp_path, tiny_config, precis, caplog):
    """The first trial is complete; the second one is worse than any median that it could have to beat."""
    fixed = {"trainer.val_check_interval": 2, "trainer.max_epochs": 1}
    section = {"pruner": "median", "startup": 0, "warmup": 0, "metric": "val/nll", "direction": "minimize"}
    keys = {"optimizer.lr": {"values": [0.01, 1e-9]}}
    path = write_search(tmp_path, tiny_config, keys, {"set": fixed | {"optimizer": "torch.optim.Adam"}}, **section)
    sweep, out = read_sweep(path), tmp_path / "out"
    search = searching.record_search(sweep, searching.compose_search(sweep)[0].config, out)
    for number, rate in enumerate(("0.01", "1e-09")):
        search.study.enqueue_trial({"optimizer.lr": rate})
        job = searching._job(search, *search.claim(1))
        job.prepare()
        ((_, arguments), *_) = job.stages()
        precis(*arguments).succeeded()
        search.end(number, None)
    full, pruned = search.trials
    assert full.state.name == "COMPLETE" and sorted(full.intermediate_values) == [1, 2, 3]
    assert full.value == pytest.approx(min(full.intermediate_values.values()))
    assert pruned.state.name == "PRUNED" and sorted(pruned.intermediate_values) == [1]
    assert "training ended early after step 2: the search prunes the trial after validation 1" in caplog.text
    assert precis(*arguments).status == 0  # as a worker that was killed before it recorded the end
    assert "was ended early after step 2" in caplog.text
