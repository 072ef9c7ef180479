"""The sweep folder: points of a sweep, their launches and states.

sweep.yaml       copy of the sweep file
points.json      every point: run folder, label, overrides and composed config
launch.json      last launch of points: launcher, and SLURM job id of each
slurm/           batch scripts and output of SLURM
NAME_DIGEST/     run folder of each point (see run_folder.py), with point.yaml, status.json and log.txt

A search has more, and other run folders:

base.yaml        config that the trials are made from
search.journal   the trials: values, scores, states (see study.py)
best.yaml        config of the best trial so far
trial-NNN/       run folder of each trial
worker-N/        log.txt and status.json of each worker
"""

import json
import re
import shlex
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser

from datamodules.atomic_write import atomic_write
from datamodules.documents import UserError
from datamodules.file_locks import is_locked
from datamodules.text.lines import counted, printable_line
from lightning_modules.metrics.lead import beside_lead
from precis.config.trust import FLAG, check_commands, is_trusted
from precis.files.data_files import REMEDY, read_json
from precis.runs.runs import read_metrics
from precis.runs.sweep_points import POINTS, read_described
from precis.sweeping.grid import Point, Sweep
from precis.sweeping.job import Job, WorkerJob, is_finished, read_status
from precis.sweeping.slurm import Profile, checked_profile, queue
from precis.trials.search_folder import read_section

LOCK = ".launcher.lock"
STYLES = {"finished": "green", "failed": "red", "interrupted": "yellow"}
TO_RETRY = ("failed", "interrupted", "missing")
LAUNCH = "launch.json"
_JOB_ID = re.compile(r"\d+(_\d+)?")
_PLAIN_DIRECTIVES = {"account", "constraint", "exclude", "gres", "nodelist", "qos", "reservation"}


@dataclass(frozen=True)
class PointState:
    """State of a point, with details such as the last scores, and the id of its last SLURM job, empty without one.

    The state is finished, running, queued (in SLURM), waiting (for an active local launcher), failed, interrupted
    (started but not running) or missing (not started).
    """

    job: Job
    state: str
    detail: str = ""
    slurm: str = ""


def jobs_of(sweep: Sweep, points: list[Point], out: Path) -> list[Job]:
    """Return the job of each point: its run folder in `out`, its config, and the commands after `fit`."""
    return [Job(point.label, out / point.name, point.config, tuple(sweep.after)) for point in points]


def launched_elsewhere(out: Path) -> UserError:
    """Return the error for a sweep folder whose lock another launcher holds."""
    status = f"precis sweep status {shlex.quote(str(out))}"
    return UserError(f"{out}: another launcher is running this sweep; {status} shows it")


def record(sweep: Sweep, points: list[Point], out: Path) -> None:
    """Write sweep.yaml, a copy of the sweep file, and points.json with its points."""
    if is_locked(out / LOCK):  # its launcher would go on with points that are no longer in points.json
        raise launched_elsewhere(out)
    out.mkdir(parents=True, exist_ok=True)
    write_points(sweep, out, points)
    atomic_write(out / "sweep.yaml", sweep.path.read_text(encoding="utf-8"))


def write_points(sweep: Sweep, out: Path, points: list[Point]) -> None:
    """Write points.json with these points; the points of a search are added when its trials start."""
    described = [{"run": p.name, "label": p.label, "overrides": p.overrides, "config": p.config} for p in points]
    content = {"sweep": sweep.path.stem, "base": str(sweep.base), "after": sweep.after, "points": described}
    atomic_write(out / POINTS, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def write_launch(out: Path, launcher: str, jobs: dict[str, str], **more: Any) -> None:
    """Record a launch in launch.json; `jobs`, SLURM's ids by run folder, are added to the ids of earlier launches."""
    content = {"launcher": launcher, "host": socket.gethostname(), "jobs": read_launch(out)["jobs"] | jobs, **more}
    atomic_write(Path(out) / LAUNCH, json.dumps(content, indent=1) + "\n")


def states(out: Path, jobs: Sequence[Job] | None = None) -> list[PointState]:
    """Return the states of jobs, e.g. the workers of a hyperparameter search; by default, of points in points.json."""
    jobs = read_points(out) if jobs is None else jobs
    submitted = read_launch(out)["jobs"]
    slurm_ids = [submitted.get(job.folder.name, "") for job in jobs]  # empty if it was not submitted
    # Query the queue first: jobs that leave it in the meantime have their final state in the folder.
    queued = queue(number for job, number in zip(jobs, slurm_ids) if not is_finished(job))
    launcher_is_active = bool(is_locked(Path(out) / LOCK))
    return [
        PointState(job, *_state(job, queued.get(number), launcher_is_active), number)
        for job, number in zip(jobs, slurm_ids)
    ]


def _state(job: Job, in_slurm: tuple[str, str] | None, launcher_is_active: bool) -> tuple[str, str]:
    """Return state and details of a job as in `PointState`; `in_slurm` is its (state, reason) in the queue, if any."""
    if is_finished(job):
        return "finished", last_metrics(job.folder)
    slurm_state, reason = in_slurm or ("", "")
    if slurm_state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "CONFIGURING"):  # in other states, it runs
        path = job.folder / "requeued.json"
        num_requeues = read_json(path, requeued=int)["requeued"] if path.is_file() else 0
        return "queued", reason + (f", requeued {counted(num_requeues, 'time')}" if num_requeues else "")
    if in_slurm is not None or is_locked(job.folder / ".lock"):  # the lock of a local launcher's process
        return "running", _current_command(job)
    if failed := read_status(job.folder)["failed"]:  # command and exit status
        return "failed", f"{failed.get('command')} ended with status {failed.get('status')}: {last_line(job.log)}"
    if launcher_is_active:  # a local one, which starts this job later
        return "waiting", ""
    if job.log.is_file():
        return "interrupted", last_metrics(job.folder)
    return "missing", ""


def _current_command(job: Job) -> str:
    """Return the command that a running job last wrote to its log, for `fit` with the progress of training."""
    lines = job.log.read_text(encoding="utf-8", errors="replace").splitlines() if job.log.is_file() else []
    commands = [line.split()[2] for line in lines if line.startswith("$ precis ")]  # such as "$ precis fit ..."
    if not commands:
        return "starting"
    return f"{commands[-1]} {last_metrics(job.folder)}".strip() if commands[-1] == "fit" else commands[-1]


def worker_jobs(out: Path, count: int) -> list[WorkerJob]:
    """Return the jobs of a search's workers: 1 to `count`, and those of earlier launches, which have a folder."""
    names = (path.name.removeprefix("worker-") for path in out.glob("worker-*"))
    earlier = {int(name) for name in names if re.fullmatch("[1-9][0-9]{0,3}", name)}  # ignores other folders
    section, base = read_section(out)
    trials = section["trials"]
    numbers = sorted(earlier | set(range(1, count + 1)))
    return [WorkerJob(f"worker {number}", out / f"worker-{number}", base, trials=trials) for number in numbers]


def last_line(path: Path) -> str:
    """Return the last line of a log that is not blank, or "no output"."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


def last_metrics(run: Path) -> str:
    """Return the step and the last validation ROUGE-1 in metrics.csv as a text; empty before the first values."""
    step, scores = read_metrics(run, "val/rouge1")
    return ("" if step is None else f"step {step}") + (f", ROUGE-1 {scores[-1]:.2f}" if scores else "")


def print_state(label: str, state: str, detail: str = "") -> None:
    """Print a line on a run whose state has changed."""
    print(printable_line(f"{label}: {state}" + (f": {detail}" if detail else "")), flush=True)


def conclude(out: Path, jobs: Sequence[Job]) -> None:
    """Print the point with the best test ROUGE-1, beside that of lead-1, and a command that compares tested points."""
    files = [(job.label, job.folder / "results.json") for job in jobs]
    results = [(label, read_json(path, scores=dict)) for label, path in files if path.is_file()]
    results = [(label, result) for label, result in results if "test/rouge1" in result["scores"]]
    if results:
        label, result = max(results, key=lambda item: item[1]["scores"]["test/rouge1"])
        best = f"{label}: {beside_lead(result['scores']['test/rouge1'], result.get('lead1'))}"
        print(printable_line(f"best of {counted(len(results), 'point')}: {best}"))
        print(f"next: {shlex.join(['precis', 'compare', str(out), '--html', 'page.html'])}", flush=True)


def read_points(out: Path) -> list[Job]:
    """Return the jobs of the points in a sweep folder; a `UserError` for a command that a sweep may not run."""
    path = Path(out) / POINTS
    content = read_described(out)
    check_commands(content["after"], str(path))
    after = tuple(content["after"])
    return [Job(row["label"], path.parent / row["run"], row["config"], after) for row in content["points"]]


def read_launch(out: Path) -> dict[str, Any]:
    """Return launch.json: `launcher` (local, slurm; None before a launch), `jobs` (SLURM ids by run folder), etc."""
    path = Path(out) / LAUNCH
    if not path.is_file():
        return {"launcher": None, "jobs": {}}  # there was no launch yet
    content = read_json(path, launcher=str | None, jobs=dict[str, str])
    for job_id in content["jobs"].values():  # they become arguments of scancel
        if not _JOB_ID.fullmatch(job_id):
            raise UserError(f"{path}: {job_id!r} is not the id of a SLURM job; {REMEDY}")
    return content


def read_profile(out: Path) -> Profile:
    """Return the profile of the last launch; a `UserError` if it may run commands, unless the folder is trusted."""
    path = Path(out) / LAUNCH
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--profile", type=Profile)  # checks names and types
    try:
        parsed = parser.parse_object({"profile": read_json(path, profile=dict)["profile"]}).profile
    except ArgumentError as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}; {REMEDY}") from None
    profile = checked_profile(parsed)
    unchecked = ["setup"] if profile.setup else []  # lines of a batch script
    unchecked += sorted(set(profile.directives) - _PLAIN_DIRECTIVES)  # `wrap`, for example, is a command
    if unchecked and not is_trusted():
        remedy = f"name a profile with --profile, or pass {FLAG} if you launched this sweep (see SECURITY.md)"
        raise UserError(f"{path}: profile: {unchecked[0]} may run commands; {remedy}")
    return profile
