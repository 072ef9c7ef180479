"""`precis sweep status | logs | cancel FOLDER`: state, logs and cancellation of a sweep."""
import json
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser
from jsonargparse.typing import NonNegativeInt, PositiveInt
from rich.console import Console
from rich.table import Table
from rich.text import Text

from datamodules.documents import UserError
from datamodules.file_locks import is_locked
from datamodules.text.lines import counted
from datamodules.text.printable import printable, printable_line
from precis.sweeping import slurm
from precis.sweeping.folder_files import read_launch, read_local_launch
from precis.sweeping.point import run_point
from precis.sweeping.progress import STYLES
from precis.sweeping.rendering import render
from precis.sweeping.sweep_folder import LOCK, PointState, states, worker_jobs
from precis.trials.search_folder import is_search, read_search

if TYPE_CHECKING:
    from precis.trials.study import Search


def status(arguments: list[str]) -> None:
    """`precis sweep status FOLDER`: show the state of each point, or of each trial of a search and the best one."""
    parser = ArgumentParser(prog="precis sweep status", description=status.__doc__, exit_on_error=False)
    parser.add_argument("folder", type=Path, help="a sweep folder, such as runs/NAME")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--html", type=Path | None, default=None, help="for a search: write a page with plots")
    options = parser.parse_args(arguments)
    folder = options.folder
    if is_search(folder):
        show_search(read_search(folder), options.json, options.html)
        return
    if options.html:
        raise UserError(f"{folder}: not a search, to which --html belongs; use precis compare {folder} --html PAGE")
    points = states(folder)
    counts = Counter(point.state for point in points)
    if options.json:
        rows = [
            {"point": p.job.label, "run": p.job.folder.name, "state": p.state, "detail": p.detail, "slurm": p.slurm}
            for p in points
        ]
        print(json.dumps({"counts": counts, "points": rows}, ensure_ascii=False, indent=1))
        return
    table = Table()
    for name in ("point", "state", "job", ""):
        table.add_column(name, overflow="fold")
    for point in points:
        state = Text(point.state, style=STYLES.get(point.state, ""))
        label, detail = printable_line(point.job.label), printable_line(point.detail)
        table.add_row(Text(label), state, Text(point.slurm), Text(detail))
    console = Console()
    console.print(table)
    by_state = ", ".join(f"{count} {state}" for state, count in counts.items())
    console.print(f"{counted(len(points), 'point')}: {by_state}")


def show_search(search: "Search", as_json: bool = False, page: Path | None = None) -> None:
    """Print the status of a search, and write its page."""
    from precis.sweeping.search_report import show_status, trial_rows, write_search_page

    if page is not None:
        write_search_page(page, search)
    if not as_json:
        show_status(search, Console())
        return
    rows, best = trial_rows(search), search.best
    counts = Counter(row["state"] for row in rows)
    chosen = {"trial": best.number, "score": best.value} if best is not None else None
    print(json.dumps({"counts": counts, "best": chosen, "trials": rows}, ensure_ascii=False, indent=1))


def matching_points(points: Sequence[PointState], names: Sequence[str], folder: Path) -> list[PointState]:
    """Return the points whose label or run folder contains one of the words; all without words.

    Raises:
        UserError: if a word matches no point.
    """
    for name in names:
        if not any(name in point.job.label or name in point.job.folder.name for point in points):
            raise UserError(f"{folder}: no point {name!r}; it has {', '.join(p.job.label for p in points[:20])}")
    return [p for p in points if not names or any(n in p.job.label or n in p.job.folder.name for n in names)]


def logs(arguments: list[str]) -> None:
    """`precis sweep logs FOLDER [POINT ...]`: the last lines that points wrote."""
    parser = ArgumentParser(prog="precis sweep logs", description=logs.__doc__, exit_on_error=False)
    parser.add_argument("folder", type=Path, help="a sweep folder, such as runs/NAME")
    parser.add_argument("points", nargs="*", type=str, help="words in labels of points; all points by default")
    parser.add_argument("--lines", type=PositiveInt, default=10, help="number of lines per point")
    parser.add_argument("--rank", type=NonNegativeInt, default=0, help="the process whose log is shown")
    options = parser.parse_args(arguments)
    folder = options.folder
    workers = states(folder, worker_jobs(folder, 1)) if is_search(folder) else []
    for point in matching_points([*states(folder), *workers], options.points, folder):
        path = point.job.log if options.rank == 0 else point.job.folder / f"log.rank{options.rank}.txt"
        if not path.is_file() and point.slurm:  # it failed before its log was created
            path = folder / "slurm" / f"{point.slurm}_{options.rank}_log.out"
        print(f"== {printable_line(point.job.label)} ({point.state}): {path}")
        if path.is_file():
            last = path.read_text(encoding="utf-8", errors="replace").split("\n")[-options.lines - 1 :]
            print(printable("\n".join(last).removesuffix("\n")))


def cancel(arguments: list[str]) -> None:
    """`precis sweep cancel FOLDER [POINT ...]`: stop running and waiting points; runs save first, `retry` continues."""
    parser = ArgumentParser(prog="precis sweep cancel", description=cancel.__doc__, exit_on_error=False)
    parser.add_argument("folder", type=Path, help="a sweep folder, such as runs/NAME")
    parser.add_argument("points", nargs="*", type=str, help="words in labels of points; all points by default")
    options = parser.parse_args(arguments)
    folder = options.folder
    jobs = worker_jobs(folder, 1) if is_search(folder) else None
    points = matching_points(states(folder, jobs), options.points, folder)
    numbers = [point.slurm for point in points if point.slurm and point.state in ("queued", "running")]
    if numbers:
        slurm.cancel(numbers)
        print(f"cancelled {counted(len(numbers), 'job')}")
    if read_launch(folder)["launcher"] == "local" and is_locked(folder / LOCK):
        _stop_launcher(folder, options.points)
    elif not numbers:
        print("no point is running or waiting")


def _stop_launcher(folder: Path, points: Sequence[str]) -> None:
    host, process = read_local_launch(folder)
    if points:
        raise UserError(f"{folder}: a local launcher stops as a whole; leave the points out")
    if host != socket.gethostname():
        raise UserError(f"{folder}: its launcher is on {host}; cancel it there")
    os.kill(process, signal.SIGTERM)
    print(f"told process {process} to save its runs and to exit")


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "status": status,
    "logs": logs,
    "cancel": cancel,
    "render": render,
    "point": run_point,
}
