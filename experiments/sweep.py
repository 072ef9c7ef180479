"""`precis sweep FILE`: every point of a grid checked before any starts, then run where it is missing.

The sweep folder holds what later commands need to know of the sweep:

    sweep.yaml     the file as it was given
    points.json    every point: its run folder, what is said of it, its overrides and its composed config
    NAME_DIGEST/   a run folder a point (see run_folder.py), with point.yaml, status.json and log.txt beside
"""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from jsonargparse import ArgumentParser
from jsonargparse.typing import PositiveInt

from experiments.grid import Point, Sweep, compose, flags, read_sweep
from experiments.launch import Job, is_finished, launch, write_whole


def jobs_of(sweep: Sweep, points: list[Point], out: Path) -> list[Job]:
    """What is to be run for each point."""
    return [Job(point.label, out / point.name, point.config, tuple(sweep.after)) for point in points]


def record(sweep: Sweep, points: list[Point], out: Path) -> None:
    """Writes sweep.yaml, the file as it was given, and points.json, the points that it makes."""
    out.mkdir(parents=True, exist_ok=True)
    rows = [
        {"run": point.name, "label": point.label, "overrides": point.overrides, "config": point.config}
        for point in points
    ]
    described = {"sweep": sweep.path.stem, "base": str(sweep.base), "after": sweep.after, "points": rows}
    write_whole(out / "points.json", json.dumps(described, ensure_ascii=False, indent=1) + "\n")
    write_whole(out / "sweep.yaml", sweep.path.read_text(encoding="utf-8"))


def dry_run(sweep: Sweep, points: list[Point], jobs: list[Job]) -> Iterator[str]:
    """The commands of each point, as they can be typed, and the count."""
    for point, job in zip(points, jobs):
        yield f"# {point.label}" + (" (finished)" if is_finished(job) else "")
        fit = ["precis", "fit", f"--config={sweep.base}", *flags(point.overrides), f"--run_dir={job.folder}"]
        yield shlex.join(fit)
        yield from (shlex.join(["precis", *arguments]) for _, arguments in job.stages()[1:])
    done = sum(map(is_finished, jobs))
    yield f"{len(jobs)} points: {done} finished, {len(jobs) - done} to run"


def sweep(arguments: list[str]) -> None:
    """`precis sweep FILE`: checks every point of a grid, then runs those that are missing, some at a time.

    Stopped by Ctrl-C or SIGTERM it lets its runs save; the same command goes on."""
    parser = ArgumentParser(prog="precis sweep", description=sweep.__doc__, exit_on_error=False)
    parser.add_argument("file", type=Path, help="a sweep file, such as experiments/sweeps/pointer_generator_rows.yaml")
    parser.add_argument("--launcher", type=Literal["local"], default="local", help="where runs run: on this machine")
    parser.add_argument("--jobs", type=PositiveInt, default=1, help="runs at a time")
    parser.add_argument("--out", type=Path | None, default=None, help="the sweep folder; runs/NAME of FILE if none")
    parser.add_argument("--dry-run", action="store_true", help="print commands and count, start nothing")
    options = parser.parse_args(arguments)
    file = read_sweep(Path(str(options.file)))
    out = Path(str(options.out)) if options.out else Path("runs") / file.path.stem
    points = compose(file)
    jobs = jobs_of(file, points, out)
    if options.dry_run:
        print("\n".join(dry_run(file, points, jobs)))
        return
    record(file, points, out)
    launch(jobs, options.jobs)
