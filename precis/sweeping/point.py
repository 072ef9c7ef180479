"""`precis sweep point FOLDER`: one point of a sweep, for the schedulers of `precis sweep render`."""

import json
import os
from pathlib import Path

from jsonargparse import ArgumentParser
from jsonargparse.typing import NonNegativeInt

from datamodules.atomic_write import atomic_write
from datamodules.documents import UserError
from precis.sweeping.folder_files import read_points
from precis.sweeping.job import Job, is_finished
from precis.sweeping.launch import launch

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"  # variable set by Kubernetes


def run_point(arguments: list[str]) -> None:
    """`precis sweep point FOLDER --index N`: run the commands of one point that were not successful yet.

    On SIGTERM the run saves and stops; the same command continues it."""
    parser = ArgumentParser(prog="precis sweep point", description=run_point.__doc__, exit_on_error=False)
    parser.add_argument("folder", type=Path, help="a sweep folder, such as runs/NAME")
    parser.add_argument(
        "--index", type=NonNegativeInt | None, default=None, help=f"index of the point; by default ${INDEX_VARIABLE}"
    )
    parser.add_argument("--is_finished", action="store_true", help="exit with status 1 unless the point is finished")
    parser.add_argument("--mark_finished", action="store_true", help="mark the point as finished without running it")
    options = parser.parse_args(arguments)
    job = _find(options.folder, options.index)
    if options.is_finished:
        raise SystemExit(0 if is_finished(job) else 1)
    if options.mark_finished:
        if not (job.folder / "config.yaml").is_file():
            raise UserError(f"{job.folder}: has no run to mark as finished; run its commands first")
        done = [name for name, _ in job.stages()]
        atomic_write(job.folder / "status.json", json.dumps({"done": done, "failed": None}) + "\n")
        return
    launch([job])


def _find(folder: Path, index: int | None) -> Job:
    """Return the job of a point.

    Raises:
        UserError: if there is no index, or no such point.
    """
    jobs = read_points(folder)
    if index is None:
        text = os.environ.get(INDEX_VARIABLE, "")
        if not text.isdecimal():
            raise UserError(f"--index is missing, and {INDEX_VARIABLE} is not a number; give the index of a point")
        index = int(text)
    if index >= len(jobs):
        raise UserError(f"{folder}: no point {index}; it has {len(jobs)}, from 0")
    jobs[index].check_links()
    return jobs[index]
