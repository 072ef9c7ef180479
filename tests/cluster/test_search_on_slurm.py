"""A search on a real SLURM: one array of workers, one of which is told to save and is requeued."""

import json
import re
from pathlib import Path

import pytest
from conftest import write_sweep

pytest.importorskip("optuna")


def read_status(precis, out: Path) -> dict:
    return json.loads(precis("sweep", "status", out, "--json").succeeded().out)


def test_workers_share_the_trials_and_a_requeued_one_continues_its_own(slurm, tiny_config, tmp_path, precis):
    held, out = tmp_path / "held", tmp_path / "out"
    callback = {"class_path": "interrupting.Hold", "init_args": {"folder": str(held), "batch": 3}}
    fixed = {"trainer.callbacks": [callback], "trainer.max_epochs": 1}
    search = {"trials": 3, "sampler": "random", "keys": {"model.dropout": {"uniform": [0.0, 0.5]}}}
    path = write_sweep(tmp_path, tiny_config, set=fixed, search=search)
    asked = ["--launcher", "slurm", "--profile.concurrency", 2, "--trust"]
    assert "submitted 2 workers as job" in precis("sweep", path, "--out", out, *asked).succeeded().out
    slurm.wait_for((held / "holding").exists)
    # the trial of the process that waits in a training step: others may still be starting
    command = Path("/proc", (held / "holding").read_text(), "cmdline").read_text()
    number = int(re.search(r"/trial-(\d+)/", command)[1])
    folder = out / f"trial-{number:03d}"
    counts = read_status(precis, out)["counts"]
    assert counts.get("running", 0) >= 1 and "interrupted" not in counts
    running = read_status(precis, out)["trials"][number]
    job = json.loads((out / "launch.json").read_text())["jobs"][f"worker-{running['worker']}"]
    slurm.ask("scancel", "--signal=USR1", job)
    slurm.wait_for(lambda: "SIGUSR1: finishing this step" in (folder / "log.txt").read_text())
    (held / "go").touch()
    slurm.wait_until_empty()
    logs = "".join(log.read_text()[-2000:] for log in [*out.glob("*/log.txt"), *(out / "slurm").glob("*_log.out")])
    told = read_status(precis, out)
    assert told["counts"] == {"complete": 3} and slurm.restarts(job) == 1, logs
    finished = told["trials"][number]
    assert finished["values"] == running["values"] and finished["worker"] == running["worker"]
    log = (folder / "log.txt").read_text()
    assert log.count("$ precis fit") == 2 and "stopped after step" in log
    assert precis("sweep", "retry", out, "--trust").out.startswith("2 workers, 0 to run")
