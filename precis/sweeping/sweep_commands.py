"""`precis sweep status | logs | cancel | point FOLDER`: states, logs, cancellation, and a run of one point."""

import json
import os
import signal
import socket
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentParser
from jsonargparse.typing import NonNegativeInt, PositiveInt
from rich.console import Console
from rich.table import Table
from rich.text import Text

from datamodules.documents import UserError
from datamodules.file_locks import is_locked
from datamodules.text.lines import counted, printable, printable_line
from precis.files.data_files import REMEDY, read_json
from precis.sweeping import slurm, sweep_folder
from precis.sweeping.launch import launch
from precis.sweeping.sweep_folder import PointState
from precis.trials.search_folder import is_search, read_search

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"  # variable set by Kubernetes


def folder_parser(command: str, description: str | None, points: bool = False) -> ArgumentParser:
    """Return a parser of a sweep folder, and if `points`, also of words that select points."""
    parser = ArgumentParser(prog=f"precis sweep {command}", description=description, exit_on_error=False)
    parser.add_argument("folder", type=Path, help="a sweep folder, such as runs/NAME")
    if points:
        parser.add_argument("points", nargs="*", type=str, help="words in labels of points; all points by default")
    return parser


def status(arguments: list[str]) -> None:
    """`precis sweep status FOLDER`: show the state of each point, or of each trial of a search and the best one."""
    parser = folder_parser("status", status.__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options = parser.parse_args(arguments)
    folder = options.folder
    if is_search(folder):
        search = read_search(folder)
        from precis.sweeping.search_report import print_search  # imports Optuna

        print_search(search, options.json)
        return
    points = sweep_folder.states(folder)
    counts = Counter(point.state for point in points)
    if options.json:
        described = []
        for point in points:
            names = {"point": point.job.label, "run": point.job.folder.name}
            described.append({**names, "state": point.state, "detail": point.detail, "slurm": point.slurm})
        print(json.dumps({"counts": counts, "points": described}, ensure_ascii=False, indent=1))
        return
    table = Table()
    for name in ("point", "state", "job", ""):  # job: id in SLURM; the last column has details of the state
        table.add_column(name, overflow="fold")
    for point in points:
        state = Text(point.state, style=sweep_folder.STYLES.get(point.state, ""))
        label = Text(printable_line(point.job.label))
        table.add_row(label, state, Text(point.slurm), Text(printable_line(point.detail)))
    console = Console()
    console.print(table)
    by_state = ", ".join(f"{count} {state}" for state, count in counts.items())
    console.print(f"{counted(len(points), 'point')}: {by_state}")


def _matching(points: Sequence[PointState], words: Sequence[str], folder: Path) -> list[PointState]:
    """Return points with a word in label or folder name (no words: all); a `UserError` if a word matches no point."""

    def matches(point: PointState, word: str) -> bool:
        return word in point.job.label or word in point.job.folder.name

    for word in words:
        if not any(matches(point, word) for point in points):
            labels = ", ".join(point.job.label for point in points[:20])  # a longer list would hide the message
            raise UserError(f"{folder}: no point {word!r}; it has {labels}")
    return [point for point in points if not words or any(matches(point, word) for word in words)]


def logs(arguments: list[str]) -> None:
    """`precis sweep logs FOLDER [POINT ...]`: the last lines that points wrote."""
    parser = folder_parser("logs", logs.__doc__, points=True)
    parser.add_argument("--lines", type=PositiveInt, default=10, help="number of lines per point")
    parser.add_argument("--rank", type=NonNegativeInt, default=0, help="the process whose log is shown")
    options = parser.parse_args(arguments)
    folder = options.folder
    workers = sweep_folder.worker_jobs(folder, 1) if is_search(folder) else []  # existing workers, at least worker 1
    points = [*sweep_folder.states(folder), *sweep_folder.states(folder, workers)]  # points or trials, then workers
    for point in _matching(points, options.points, folder):
        path = point.job.log if options.rank == 0 else point.job.folder / f"log.rank{options.rank}.txt"
        if not path.is_file() and point.slurm:  # the job failed before its log was created
            path = folder / "slurm" / f"{point.slurm}_{options.rank}_log.out"  # log file of submitit
        print(f"== {printable_line(point.job.label)} ({point.state}): {path}")
        if path.is_file():
            lines = path.read_text(encoding="utf-8", errors="replace").removesuffix("\n").split("\n")
            print(printable("\n".join(lines[-options.lines :])))


def cancel(arguments: list[str]) -> None:
    """`precis sweep cancel FOLDER [POINT ...]`: stop running and waiting points; runs save first, `retry` continues."""
    options = folder_parser("cancel", cancel.__doc__, points=True).parse_args(arguments)
    folder = options.folder
    jobs = sweep_folder.worker_jobs(folder, 1) if is_search(folder) else None  # existing workers, at least worker 1
    points = _matching(sweep_folder.states(folder, jobs), options.points, folder)
    slurm_ids = [point.slurm for point in points if point.slurm and point.state in ("queued", "running")]
    if slurm_ids:
        slurm.cancel(slurm_ids)
        print(f"cancelled {counted(len(slurm_ids), 'job')}")
    if sweep_folder.read_launch(folder)["launcher"] == "local" and is_locked(folder / sweep_folder.LOCK):
        path = folder / sweep_folder.LAUNCH  # has host and process of the launcher, which holds the lock while it runs
        content = read_json(path, host=str, pid=int)
        host = content["host"]
        process = content["pid"]
        if process < 1:  # a signal to 0 or a negative number would reach a group of processes
            raise UserError(f"{path}: {process} is not the number of a launcher; {REMEDY}")
        if options.points:
            raise UserError(f"{folder}: a local launcher stops as a whole; leave the points out")
        if host != socket.gethostname():
            raise UserError(f"{folder}: its launcher is on {host}; cancel it there")
        os.kill(process, signal.SIGTERM)
        print(f"told process {process} to save its runs and to exit")
    elif not slurm_ids:
        print("no point is running or waiting")


def run_point(arguments: list[str]) -> None:
    """`precis sweep point FOLDER --index N`: run the commands of one point that were not successful yet.

    On SIGTERM the run saves and stops; the same command continues it. `precis sweep render` uses it."""
    parser = folder_parser("point", run_point.__doc__)
    index_help = f"index of the point; by default ${INDEX_VARIABLE}"
    parser.add_argument("--index", type=NonNegativeInt | None, default=None, help=index_help)
    options = parser.parse_args(arguments)
    jobs = sweep_folder.read_points(options.folder)
    index = options.index
    if index is None:
        text = os.environ.get(INDEX_VARIABLE, "")  # set by Kubernetes
        if not text.isdecimal():
            raise UserError(f"--index is missing, and {INDEX_VARIABLE} is not a number; give the index of a point")
        index = int(text)
    if index >= len(jobs):
        raise UserError(f"{options.folder}: no point {index}; it has {len(jobs)}, from 0")
    jobs[index].check_links()  # no link may lead out of the sweep folder
    launch([jobs[index]])  # one job, which has all cores and GPUs
