"""Requeueing of preempted SLURM jobs."""

import json
import os
import re
import subprocess
from pathlib import Path

from datamodules.atomic_write import atomic_write
from precis.files.data_files import read_json

MAX_WITHOUT_PROGRESS = 3  # requeues in a row without a new checkpoint; after more, a job would come back for ever


def job_id() -> str | None:
    """Return the id of the SLURM job of this process, such as 12, or 12_3 in a job array; None without SLURM."""
    if array := os.environ.get("SLURM_ARRAY_JOB_ID"):
        return f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    return os.environ.get("SLURM_JOB_ID")


def requeue(run: Path, progress_file: Path | None = None) -> bool:
    """Requeue the SLURM job of this process, print the outcome, and return whether the job will run again.

    A job that SLURM has canceled or requeued already is no longer RUNNING, and is not requeued here; nor is one without
    progress: its `progress_file`, by default the last checkpoint, has not been written since several requeues.
    """
    job = job_id()
    if job is None:
        return False
    description = ask_slurm("scontrol", "show", "job", "--oneliner", job)
    match = re.search(r"\bJobState=(\w+)", description.stdout)
    state = match[1] if description.returncode == 0 and match else ""
    if state != "RUNNING":  # flush, here and below, since SLURM may kill the process before it writes its buffer
        print(f"job {job} is {state or 'unknown'}, no longer RUNNING: SLURM decides whether it comes back", flush=True)
        return state in ("COMPLETING", "PENDING", "REQUEUED", "PREEMPTED")  # states of a job that SLURM requeues
    without_progress = _increment_requeues(run, progress_file or Path(run) / "checkpoints" / "last.ckpt")
    if without_progress >= MAX_WITHOUT_PROGRESS:
        problem = f"stopped {without_progress} times without a new checkpoint, it is not put back into the queue"
        print(f"job {job}: {problem}", flush=True)
        return False
    answer = ask_slurm("scontrol", "requeue", job)
    accepted = answer.returncode == 0
    outcome = "is back in the queue" if accepted else f"could not be put back into the queue: {answer.stderr.strip()}"
    print(f"job {job} {outcome}", flush=True)
    return accepted


def _increment_requeues(run: Path, progress_file: Path) -> int:
    """Count a requeue in requeued.json; return the number of earlier ones since `progress_file` was last written."""
    path = Path(run) / "requeued.json"
    earlier = {"requeued": 0, "without_progress": 0}
    if path.is_file():
        earlier = read_json(path, requeued=int, without_progress=int)
    saved_at = progress_file.stat().st_mtime_ns if progress_file.is_file() else 0  # nanoseconds; 0: not written yet
    has_progress = earlier.get("checkpoint") != saved_at  # the key has `saved_at` at the last requeue
    without_progress = 0 if has_progress else earlier["without_progress"] + 1
    counts = {"requeued": earlier["requeued"] + 1, "without_progress": without_progress, "checkpoint": saved_at}
    atomic_write(path, json.dumps(counts) + "\n")
    return without_progress


def ask_slurm(*command: str) -> subprocess.CompletedProcess:
    """Run a command of SLURM; return status 1 if it is not installed or does not end within a minute."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))
