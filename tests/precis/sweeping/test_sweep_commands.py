"""What is known of a sweep from its folder, and the commands on it; on this machine, with stand-ins for runs."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import yaml
from conftest import wait_until, write, write_sweep

from datamodules.documents import UserError
from datamodules.file_locks import release_lock, take_lock
from precis.sweeping.job import COMMAND, Job
from precis.sweeping.slurm import Profile, checked_profile, submit
from precis.sweeping.sweep import _run_here
from precis.sweeping.sweep_folder import LOCK, read_launch, read_points, read_profile, record, states, write_launch

ROOT = Path(__file__).parents[3]
SQUEUE = """#!/bin/sh
cat {folder}/queue 2>/dev/null; [ ! -f {folder}/down ] || {{ echo 'error: no answer' >&2; exit 1; }}
"""
# numbers its jobs from the one in the file `count`, and refuses that in the file `full`; arrays have two tasks at most
SBATCH = """#!/bin/sh
job=$(($(cat {folder}/count) + 1)); echo $job > {folder}/count
[ "$job" != "$(cat {folder}/full 2>/dev/null)" ] || {{ echo 'sbatch: error: too many jobs' >&2; exit 1; }}
echo "Submitted batch job $job"
"""
SCONTROL = "#!/bin/sh\necho 'MaxArraySize            = 2'\n"
SCANCEL = '#!/bin/sh\necho "$@" >> {folder}/cancelled\n'
POINT = '{"after": [], "points": [{"label": "a", "config": {}, "run": "NAME"}]}'


def make_sweep(folder: Path, *names: str) -> list[Job]:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"run": name, "label": f"point={name} seed=1", "overrides": {}, "config": {"name": name}} for name in names]
    write(folder / "points.json", json.dumps({"sweep": "s", "base": "b.yaml", "after": ["test"], "points": rows}))
    return read_points(folder)


def leave(job: Job, done: list[str], failed: dict | None = None, log: str = "$ precis fit\n") -> None:
    job.prepare()
    write(job.log, log)
    write(job.folder / "status.json", json.dumps({"done": done, "failed": failed}))


def by_name(out: Path) -> dict[str, str]:
    return {point.job.folder.name: point.state for point in states(out)}


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    folder = tmp_path / "slurm"
    folder.mkdir()
    programs = {"squeue": SQUEUE, "scancel": SCANCEL, "sbatch": SBATCH, "scontrol": SCONTROL, "srun": "#!/bin/sh\n"}
    for name, text in programs.items():
        write(folder / name, text.format(folder=folder)).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture
def sweep(tmp_path, slurm) -> Path:
    """A sweep with a point in each state that SLURM's points can be in."""
    out = tmp_path / "out"
    done, failed, runs, _, again, gone, _ = make_sweep(out, "done", "failed", "runs", "waits", "again", "gone", "never")
    leave(done, ["fit", "test"])
    leave(failed, [], {"command": "fit", "status": 1}, "$ precis fit\nprecis: error: no luck\n")
    leave(runs, ["fit"], None, "$ precis fit --config x\n$ precis test --run x\n")
    leave(again, [])
    (again.folder / "requeued.json").write_text('{"requeued": 2, "without_progress": 0}')
    leave(gone, [])
    numbers = {name: f"7_{number}" for number, name in enumerate(("done", "failed", "runs", "waits", "again", "gone"))}
    write_launch(out, "slurm", numbers)
    write(slurm / "queue", "7_2|RUNNING|None\n7_3|PENDING|JobArrayTaskLimit\n7_4|PENDING|BeginTime\n9|RUNNING|x\n")
    return out


def test_each_state_is_told_from_folder_and_a_queue_that_answers(sweep, slurm, precis):
    assert by_name(sweep) == {
        "done": "finished", "failed": "failed", "runs": "running", "waits": "queued", "again": "queued",
        "gone": "interrupted", "never": "missing",
    }  # fmt: skip
    rows = {row["run"]: row for row in json.loads(precis("sweep", "status", sweep, "--json").out)["points"]}
    assert rows["failed"]["detail"] == "fit ended with status 1: precis: error: no luck"
    assert rows["runs"]["detail"] == "test" and rows["waits"]["detail"] == "JobArrayTaskLimit"
    assert rows["again"]["detail"] == "BeginTime, requeued 2 times" and rows["waits"]["slurm"] == "7_3"
    shown = precis("sweep", "status", sweep).out
    assert "7 points: 1 finished, 1 failed, 1 running, 2 queued, 1 interrupted, 1 missing" in shown
    (slurm / "down").touch()
    for command in ("status", "retry"):
        precis("sweep", command, sweep).refused("SLURM's queue does not answer: error: no answer; try again later")


def test_logs_of_a_point_and_cancelling_of_what_runs_or_waits(sweep, slurm, precis):
    (sweep / "slurm").mkdir()
    write(sweep / "slurm" / "7_3_0_log.out", "srun: error: no such partition\n")
    heading = f"== point=failed seed=1 (failed): {sweep}/failed/log.txt"
    assert precis("sweep", "logs", sweep, "failed", "--lines", 1).out == f"{heading}\nprecis: error: no luck\n"
    assert "no such partition" in precis("sweep", "logs", sweep, "waits").out
    precis("sweep", "logs", sweep, "other").refused("no point 'other'; it has point=done seed=1, ")

    assert precis("sweep", "cancel", sweep, "again").out == "cancelled 1 job\n"
    assert precis("sweep", "cancel", sweep).out == "cancelled 3 jobs\n"
    assert (slurm / "cancelled").read_text().splitlines() == ["7_4", "7_2 7_3 7_4"]
    (slurm / "queue").unlink()
    assert precis("sweep", "cancel", sweep).out == "no point is running or waiting\n"


@pytest.mark.parametrize(("name", "text", "part"), [
    ("points.json", '{"sweep": "s", "after": [', "cannot be read"),
    ("points.json", POINT.replace("NAME", "../other"), "'../other' is not the name of a folder beside this file"),
    ("points.json", '{"after": "test", "points": []}', "the value of 'after' has a wrong type"),
    ("launch.json", '{"launcher": null, "jobs": {"a": "--user=x"}}', "'--user=x' is not the id of a SLURM job"),
    ("done/status.json", '{"done": [[]], "failed": null}', "the value of 'done' has a wrong type"),
    ("again/requeued.json", "", "cannot be read"),
])  # fmt: skip
def test_a_damaged_file_of_a_sweep_is_named(name, text, part, sweep, precis):
    (sweep / name).write_text(text)
    precis("sweep", "status", sweep).failed_in_one_line(f"precis: error: {sweep}/{name}: {part}")


def test_commands_and_lines_of_a_batch_script_in_a_strangers_folder_need_trust(tmp_path, precis, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "points.json", POINT.replace("[]", '["evaluate x.jsonl --out .bashrc"]'))
    for command in ("status", "retry", "point --index 0"):
        precis("sweep", *command.split(), ".").failed_in_one_line("points.json: after: ")
        assert [path.name for path in tmp_path.iterdir()] == ["points.json"]
    precis("sweep", "status", ".", "--trust").succeeded()

    make_sweep(tmp_path / "out", "a")
    for profile in ({"setup": ["touch ran"]}, {"directives": {"output": "/home/me/.bashrc"}}):
        write_launch(tmp_path / "out", "slurm", {}, profile=profile)
        with pytest.raises(UserError, match=r"launch.json: profile: (setup|output) may run commands; name a profile"):
            read_profile(tmp_path / "out")
        monkeypatch.setenv("PRECIS_TRUST", "1")
        trusted = read_profile(tmp_path / "out")
        assert {name: getattr(trusted, name) for name in profile} == profile
        monkeypatch.delenv("PRECIS_TRUST")
    write_launch(tmp_path / "out", "slurm", {}, profile={"directives": {"account": "nlp"}, "minutes": 5})
    assert read_profile(tmp_path / "out").directives == {"account": "nlp"}


def test_neither_a_run_nor_a_submission_writes_through_a_link(sweep, tmp_path, precis):
    pytest.importorskip("submitit", reason="needs the optional package submitit")
    point, retry = ["point", sweep, "--index=0"], ["retry", sweep, "--launcher=slurm"]
    for name, command in ("done/checkpoints", point), ("done", point), ("failed", retry):
        outside = tmp_path / f"outside-{Path(name).name}"
        outside.mkdir()
        shutil.rmtree(sweep / name, ignore_errors=True)
        (sweep / name).symlink_to(outside)
        precis("sweep", *command).refused(f"{sweep / name}: a link that leads out of {sweep}")
        assert not list(outside.iterdir())
        (sweep / name).unlink()


def test_without_slurm_or_with_a_wrong_profile_nothing_is_written(tmp_path, tiny_config, precis, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    sweep, out = write_sweep(tmp_path, tiny_config, seeds=[1, 2]), tmp_path / "out"
    launch = ["sweep", sweep, "--out", out, "--launcher", "slurm"]
    profile = write(tmp_path / "profile.yaml", 'memory: "1G\\rtouch ran"')
    precis(*launch, "--profile", profile).failed_in_one_line("profile: memory")
    assert not out.exists()
    pytest.importorskip("submitit", reason="needs the optional package submitit")
    precis(*launch).failed_in_one_line("no SLURM here", "use --launcher local")


def test_profiles_of_the_page_are_batch_scripts_of_arrays_that_wait_for_each_other(slurm, tmp_path):
    pytest.importorskip("submitit", reason="needs the optional package submitit")
    jobs = make_sweep(tmp_path / "out", "a", "b", "c", "d")
    page = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    values = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    profiles = [checked_profile(SimpleNamespace(**asdict(Profile()) | value)) for value in values]
    assert [(profile.nodes, profile.gpus_per_node) for profile in profiles] == [(1, 4), (2, 8), (1, 1)]
    for number, profile in enumerate(profiles):
        (slurm / "count").write_text("6")
        folder = tmp_path / f"profile{number}"
        waiting = replace(profile, directives=profile.directives | {"dependency": "afterok:3", "requeue": False})
        assert submit(jobs, waiting, folder, "rows") == {"a": "7_0", "b": "7_1", "c": "8_0", "d": "8_1"}
        first, second = ((folder / f"{job}_submission.sh").read_text() for job in (7, 8))
        assert "#SBATCH --dependency=afterok:3\n" in first and "--dependency=afterok:3,afterany:7\n" in second
        for script in (first, second):
            assert "#SBATCH --array=0-1%2\n" in script and "requeue" not in script
            assert f"#SBATCH --gpus-per-node={profile.gpus_per_node}\n" in script
            assert f"#SBATCH --nodes={profile.nodes}\n" in script
            assert all(line in script.splitlines() for line in profile.setup)
            for name, value in profile.directives.items():
                assert f"#SBATCH --{name}" + ("" if value is True else f"={value}") + "\n" in script

    # if SLURM refuses an array, those before are canceled
    (slurm / "count").write_text("6")
    (slurm / "full").write_text("8")
    with pytest.raises(UserError, match=r"SLURM refuses the job: .*too many jobs"):
        submit(jobs[:3], Profile(), tmp_path / "scripts", "rows")
    assert (slurm / "cancelled").read_text().split() == ["7_0", "7_1"]


def test_points_wait_while_a_launcher_is_active_which_is_not_killed_from_elsewhere(tmp_path, precis, monkeypatch):
    kill = Mock()  # a signal to process -1 would end all processes of this machine
    monkeypatch.setattr("os.kill", kill)
    out, here = tmp_path / "out", socket.gethostname()
    first, _ = make_sweep(out, "first", "second")
    assert by_name(out) == {"first": "missing", "second": "missing"}
    lock = take_lock(out / LOCK)
    assert take_lock(out / LOCK) is None
    with pytest.raises(UserError, match="another launcher is running"):
        record(None, [], out)
    assert by_name(out) == {"first": "waiting", "second": "waiting"}
    first.prepare()
    at_work = take_lock(first.folder / ".lock")
    assert by_name(out) == {"first": "running", "second": "waiting"}
    write_launch(out, "local", {}, pid=1)
    launched = read_launch(out)
    for host, number, message in (
        ("elsewhere", 1, "its launcher is on elsewhere; cancel it there"),
        *((here, number, "launch.json: ") for number in (-1, 0, "1", True)),  # of a group of processes, or none
    ):
        write(out / "launch.json", json.dumps(launched | {"host": host, "pid": number}))
        precis("sweep", "cancel", out).refused(message)
    assert not kill.called
    release_lock(lock)
    release_lock(at_work)


@pytest.mark.integration
@pytest.mark.timeout(900)  # four starts of the command; a bound for a busy machine, not a measure
def test_a_sweep_in_the_background_is_cancelled_and_retried(tmp_path, tiny_config, precis, monkeypatch):
    """With real runs: one that is finished in the background, one that waits when it is cancelled."""
    out, hold = tmp_path / "out", tmp_path / "hold"
    callback = {"class_path": "interrupting.Hold", "init_args": {"folder": str(hold), "batch": 1}}
    sweep = write_sweep(tmp_path, tiny_config, set={"trainer.max_steps": 3, "trainer.callbacks": [callback]}, after=[])
    command = ["nohup", *COMMAND, "sweep", sweep, "--out", out, "--trust"]
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'tests'}{os.pathsep}{ROOT}")
    launcher = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    wait_until((hold / "holding").exists)
    assert list(by_name(out).values()) == ["running"]
    launcher.send_signal(signal.SIGHUP)  # as when the user logs out
    with pytest.raises(UserError, match="another launcher is running"):
        _run_here(out, [], 1)
    assert "told process" in precis("sweep", "cancel", out).out
    (point,) = states(out)
    wait_until(lambda: "SIGTERM: finishing" in point.job.log.read_text())
    os.kill(int((hold / "holding").read_text()), signal.SIGTERM)  # from a scheduler that signals every process
    (hold / "go").touch()
    assert launcher.wait(600) == 130
    assert list(by_name(out).values()) == ["interrupted"] and point.job.progress_file.is_file()
    assert "1 point, 1 to run" in precis("sweep", "retry", out, "--trust").succeeded().out
    assert list(by_name(out).values()) == ["finished"]
