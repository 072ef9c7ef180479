"""Sweeps on a real SLURM: arrays, a crash and its retry, preemption, SIGKILL, cancellation, two tasks, two nodes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from conftest import assert_same_checkpoints, step_of, write, write_sweep

SLURM = ["--launcher", "slurm", "--profile.concurrency", 2, "--trust"]


def points_of(precis, out: Path) -> dict[str, dict]:
    """Return the output of `precis sweep status` for each point, by label."""
    done = precis("sweep", "status", out, "--json").succeeded()
    return {row["point"]: row for row in json.loads(done.out)["points"]}


def logs_in(out: Path) -> str:
    paths = [*sorted(out.glob("*/log*.txt")), *sorted(out.glob("slurm/*_log.out"))]
    return "".join(f"\n== {path}\n{path.read_text(encoding='utf-8', errors='replace')[-3000:]}" for path in paths)


def test_six_points_two_at_a_time_one_crash_and_its_retry(slurm, tiny_config, trained, tmp_path, precis):
    out = tmp_path / "ablation"
    broken = {"class_path": "interrupting.BrokenOnce", "init_args": {"marker": str(tmp_path / "marker"), "seed": 2}}
    fixed = {"trainer.max_epochs": 1, "trainer.callbacks": [broken]}
    path = write_sweep(tmp_path, tiny_config, set=fixed, grid={"model.coverage": [True, False]}, seeds=[1, 2, 3])
    command = ["sweep", path, "--out", out, *SLURM, "--profile.partition", "debug"]
    done = precis(*command, "--dry-run").succeeded()
    assert "6 points: 0 finished, 6 to run" in done.out and not out.exists()
    assert "submitted 6 points as job" in precis(*command).succeeded().out
    first, second = sorted((out / "slurm").glob("[0-9]*_submission.sh"))  # arrays have five tasks at most
    assert "--array=0-4%2" in first.read_text() and "--signal=USR1@120" in first.read_text()
    assert f"--dependency=afterany:{first.name.partition('_')[0]}\n" in second.read_text()
    assert precis(*command).out.startswith("6 points, 0 submitted")  # all are in the queue
    slurm.wait_until_empty()
    found = points_of(precis, out)
    states = [row["state"] for row in found.values()]
    assert sorted(states) == ["failed", *["finished"] * 5], logs_in(out)
    (label,) = [label for label, row in found.items() if row["state"] == "failed"]
    assert "seed=2" in label and "fit ended with status 1: precis: error: made to crash" in found[label]["detail"]
    assert "made to crash" in precis("sweep", "logs", out, label).out

    before = {path: path.stat().st_mtime_ns for path in out.glob("*/log.txt")}
    done = precis("sweep", "retry", out, "--trust").succeeded()
    assert "6 points, 1 to run" in done.out and label in done.out
    slurm.wait_until_empty()
    assert {row["state"] for row in points_of(precis, out).values()} == {"finished"}, logs_in(out)
    ran = [path.parent.name for path, at in before.items() if path.stat().st_mtime_ns != at]
    assert ran == [found[label]["run"]]
    assert precis("sweep", "retry", out).out.startswith("6 points, 0 to run")
    assert "coverage=true" in precis("compare", out).out
    compared = json.loads(precis("compare", out, "--json").out)["systems"]
    assert {system["name"]: len(system["runs"]) for system in compared} == {"coverage=true": 3, "coverage=false": 3}


def held(name: str, folder: Path, batch: int, **more) -> dict:
    callback = {"class_path": "interrupting.Hold", "init_args": {"folder": str(folder), "batch": batch}}
    return {"name": name, "trainer.callbacks": [callback], **more}


def test_interrupted_runs_end_with_the_weights_of_one_that_was_not(slurm, tiny_config, trained, tmp_path, precis):
    """SIGUSR1, as before the time limit; a requeue, as at a preemption; SIGKILL; and a cancellation."""
    out, places = tmp_path / "out", {name: tmp_path / name for name in ("signal", "requeue", "kill", "cancel")}
    rows = [
        held("signal", places["signal"], 3, wandb="offline"),
        held("requeue", places["requeue"], 10),
        held("kill", places["kill"], 10, save_every=2),  # has saved after 8 and 10 steps, and the epoch's 7
        held("cancel", places["cancel"], 9),
    ]
    path = write_sweep(tmp_path, tiny_config, points=rows, after=[])
    precis("sweep", path, "--out", out, *SLURM).succeeded()
    points = {row["point"]: row for row in points_of(precis, out).values()}
    logs = {name: out / row["run"] / "log.txt" for name, row in points.items()}

    def hold(name: str) -> int:
        slurm.wait_for((places[name] / "holding").exists)
        return int((places[name] / "holding").read_text())

    def go_on(name: str, said: str) -> None:
        slurm.wait_for(lambda: said in logs[name].read_text())
        (places[name] / "go").touch()

    hold("signal")
    assert points_of(precis, out)["signal"]["state"] == "running"
    slurm.ask("scancel", "--signal=USR1", points["signal"]["slurm"])
    go_on("signal", "SIGUSR1: finishing this step")
    hold("requeue")
    slurm.ask("scontrol", "requeue", points["requeue"]["slurm"])
    go_on("requeue", "SIGTERM: finishing this step")
    os.kill(hold("kill"), signal.SIGKILL)
    (places["kill"] / "go").touch()
    hold("cancel")
    assert "cancelled 1 job" in precis("sweep", "cancel", out, "cancel").out
    go_on("cancel", "SIGTERM: finishing this step")
    slurm.wait_until_empty()

    found = points_of(precis, out)
    states = [found[name]["state"] for name in ("signal", "requeue", "kill", "cancel")]
    assert states == ["finished", "finished", "failed", "interrupted"], logs_in(out)
    assert [slurm.restarts(points[name]["slurm"]) for name in ("signal", "requeue")] == [1, 1]
    assert "stopped after step 4" in logs["signal"].read_text() and logs["signal"].read_text().count("$ precis") == 2
    assert "fit ended with status -9" in found["kill"]["detail"]
    assert step_of(out / points["kill"]["run"] / "checkpoints" / "last.ckpt") == 10
    assert precis("sweep", "retry", out, "--trust").out.startswith("4 points, 2 to run")
    slurm.wait_until_empty()
    assert {row["state"] for row in points_of(precis, out).values()} == {"finished"}, logs_in(out)
    for name, row in points.items():
        assert_same_checkpoints(out / row["run"], trained)
        if name != "signal":  # which logs learning rates too, for W&B
            assert (out / row["run"] / "metrics.csv").read_bytes() == (trained / "metrics.csv").read_bytes(), name
    folders = (out / points["signal"]["run"] / "wandb").glob("offline-run-*")
    started = [path.name.split("-")[-1] for path in folders]
    assert len(started) == 2 and len(set(started)) == 1  # two starts, one W&B run


def test_two_tasks_of_one_node_or_of_two_are_two_local_processes(slurm, tiny_config, tmp_path, precis):
    two = {"trainer.devices": 2, "trainer.strategy": "ddp", "data.batch_size": 2, "trainer.max_epochs": 1}
    one_node = {"tasks_per_node": 2}, two
    two_nodes = {"nodes": 2, "partition": "pair"}, two | {"trainer.devices": 1, "trainer.num_nodes": 2}
    outs = [tmp_path / "one", tmp_path / "two"]
    refusals = ["devices is 2, but the profile has tasks_per_node 1", "num_nodes is 2, but the profile has nodes 1"]
    for out, refusal, (resources, settings) in zip(outs, refusals, (one_node, two_nodes)):
        path = write_sweep(tmp_path, tiny_config, set=settings, seeds=[3], after=[])
        command = ["sweep", path, "--out", out, "--launcher", "slurm"]
        precis(*command).refused(f"trainer.{refusal}")
        profile = {**resources, "minutes": 600, "setup": ["export GLOO_SOCKET_IFNAME=lo"]}
        precis(*command, "--profile", write(tmp_path / "profile.yaml", profile)).succeeded()
    local = tmp_path / "local"
    command = [sys.executable, "-m", "precis.command_line.cli", "fit", f"--config={tiny_config}", f"--run_dir={local}"]
    command += [*(f"--{key}={value}" for key, value in two.items()), "--seed_everything=3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    slurm.wait_until_empty()
    for out in outs:
        (point,) = points_of(precis, out).values()
        assert point["state"] == "finished", logs_in(out)
        run = out / point["run"]
        assert_same_checkpoints(run, local)
        assert (run / "metrics.csv").read_bytes() == (local / "metrics.csv").read_bytes()
        assert "distributed_backend=gloo" in (run / "log.txt").read_text()
        assert "GLOBAL_RANK: 1, MEMBER: 2/2" in (run / "log.rank1.txt").read_text()
