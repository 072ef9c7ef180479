"""The sweep folder: which points a sweep has, how they were launched, and how far each is.

sweep.yaml       the file as it was given
points.json      every point: its run folder, what is said of it, its overrides and its composed config
launch.json      how points were launched last: the launcher, and SLURM's job of each
slurm/           batch scripts, and what SLURM itself says of the jobs
launcher.log     what a local launcher says that went to the background
NAME_DIGEST/     a run folder a point (see run_folder.py), with point.yaml, status.json and log.txt beside
"""

import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datamodules.atomic_write import atomic_write
from datamodules.documents import CorpusError
from experiments.sweeping.job import Job, is_finished, is_locked, read_status
from experiments.sweeping.progress import last_line, last_metrics
from experiments.sweeping.slurm import Queued, queue

LOCK = ".launcher.lock"
TO_RETRY = ("failed", "interrupted", "missing")


@dataclass(frozen=True)
class PointState:
    """How far a point is.

    Attributes:
        job: what is to be run.
        state: finished, running, queued (at SLURM), waiting (for a local launcher that is at work), failed, interrupted
            (begun, and nobody is at work on it) or missing (not begun).
        detail: what else there is to say.
        slurm: number of its last job, or nothing.
    """

    job: Job
    state: str
    detail: str = ""
    slurm: str = ""


def read_points(out: Path) -> list[Job]:
    """The points of a sweep folder.

    Raises:
        CorpusError: if it is none.
    """
    path = Path(out) / "points.json"
    if not path.is_file():
        raise CorpusError(f"{path}: not there; give the folder of a sweep, such as runs/NAME")
    described = json.loads(path.read_text(encoding="utf-8"))
    after = tuple(described["after"])
    return [Job(row["label"], Path(out) / row["run"], row["config"], after) for row in described["points"]]


def read_launch(out: Path) -> dict[str, Any]:
    """launch.json; nothing was launched where there is none."""
    path = Path(out) / "launch.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"launcher": None, "jobs": {}}


def write_launch(out: Path, launcher: str, jobs: dict[str, str], **more: Any) -> None:
    """Keeps how points were launched: `jobs` are added to those of earlier launches."""
    known = read_launch(out)["jobs"]
    content = {"launcher": launcher, "host": socket.gethostname(), "jobs": known | jobs, **more}
    atomic_write(Path(out) / "launch.json", json.dumps(content, indent=1) + "\n")


def states(out: Path) -> list[PointState]:
    """How far each point is, from the folder and, for what SLURM was given, from its queue.

    Raises:
        CorpusError: if it is no sweep folder, or SLURM does not answer.
    """
    jobs, launched = read_points(out), read_launch(out)
    numbers = launched["jobs"]
    # asked first: what leaves the queue meanwhile has said in its folder how it ended
    queued = queue(numbers.get(job.folder.name, "") for job in jobs if not is_finished(job))
    waits = is_locked(Path(out) / LOCK)
    found = []
    for job in jobs:
        number = numbers.get(job.folder.name, "")
        found.append(PointState(job, *_state(job, queued.get(number), waits), number))
    return found


def _state(job: Job, queued: Queued | None, launcher_waits: bool) -> tuple[str, str]:
    status = read_status(job.folder)
    if is_finished(job):
        return "finished", last_metrics(job.folder)
    if queued is not None and queued.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "CONFIGURING"):
        return "queued", queued.reason + (f", requeued {count} times" if (count := _requeued(job)) else "")
    if queued is not None or is_locked(job.folder / ".lock"):
        return "running", _running(job)
    if status["failed"]:
        failed = status["failed"]
        return "failed", f"{failed['command']} ended with status {failed['status']}: {last_line(job.log)}"
    if launcher_waits:
        return "waiting", ""
    if job.log.is_file():
        return "interrupted", last_metrics(job.folder)
    return "missing", ""


def _requeued(job: Job) -> int:
    path = job.folder / "requeued.json"
    return json.loads(path.read_text(encoding="utf-8"))["requeued"] if path.is_file() else 0


def _running(job: Job) -> str:
    """The command that runs, and how far training is."""
    lines = job.log.read_text(encoding="utf-8", errors="replace").splitlines() if job.log.is_file() else []
    commands = [line.split()[2] for line in lines if line.startswith("$ precis ")]
    if not commands:
        return "starting"
    return f"{commands[-1]} {last_metrics(job.folder)}".strip() if commands[-1] == "fit" else commands[-1]
