"""Rerun all controls: `python -m experiments.studies.controls.run --out runs/controls --jobs 2`.

Every result is a file of its own in OUT/points, so that the same command continues where it was stopped. At the end the
results are written as one table and one plot.
"""

import json
import logging
import multiprocessing
import sys
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

import torch
from jsonargparse import ArgumentParser

from datamodules.atomic_write import atomic_write
from experiments.studies.controls.points import ControlPoint, all_points, reduced, run_point
from experiments.studies.controls.report import MEASURES, Result, draw, table


def read_result(point: ControlPoint, out: Path) -> Result | None:
    """Return the stored result of a point, None if there is none."""
    path = out / "points" / f"{point.name}.json"
    if not path.is_file():
        return None
    measures = json.loads(path.read_text(encoding="utf-8"))["measures"]
    return Result(point.control, point.arm, point.seed, measures)


def run_points(points: Sequence[ControlPoint], out: Path) -> None:
    """Run points one after another and store each result as soon as there is one."""
    for point in points:
        path, record = out / "points" / f"{point.name}.json", asdict(point)
        start = time.process_time()
        record["measures"] = run_point(point, out / "cache")
        record["processor_seconds"] = time.process_time() - start
        atomic_write(path, json.dumps(record, indent=1, default=str) + "\n")
        print(f"{point.control}: {point.arm}, seed {point.seed}", file=sys.stderr, flush=True)


def by_arm(points: Sequence[ControlPoint]) -> list[list[ControlPoint]]:
    """Return the points of each arm together: they share features, which a process keeps."""
    arms: dict[tuple[str, str], list[ControlPoint]] = {}
    for point in points:
        arms.setdefault((point.control, point.arm), []).append(point)
    return list(arms.values())


def run_all(points: Sequence[ControlPoint], out: Path, jobs: int) -> list[Result]:
    """Run the points that have no result yet, in `jobs` processes of one thread; return all results.

    Raises:
        Exception: the first error of a point, after the other points have run.
    """
    (out / "points").mkdir(parents=True, exist_ok=True)
    waiting = by_arm([point for point in points if read_result(point, out) is None])
    if jobs == 1:
        for arm in waiting:
            run_points(arm, out)
    else:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, mp_context=context, initializer=prepare_process) as pool:
            futures: list[Future] = [pool.submit(run_points, arm, out) for arm in waiting]
            errors = [future.exception() for future in as_completed(futures)]
        for error in filter(None, errors):
            raise error
    return [result for point in points if (result := read_result(point, out)) is not None]


def prepare_process() -> None:
    """Limit this process to one thread and to errors: hundreds of small training runs would print their hints."""
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train and score all controls, three seeds for each arm; results that are there already are kept."""
    parser = ArgumentParser(prog="python -m experiments.studies.controls.run", description=main.__doc__)
    parser.add_argument("--out", type=str, default="runs/controls", help="folder of results and caches")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes, each with one thread")
    parser.add_argument("--controls", type=list[str], default=[], help="names of controls; by default all")
    parser.add_argument(
        "--table", type=str | None, default=None, help="file of the table; by default OUT/controls_table.md"
    )
    parser.add_argument("--plot", type=str | None, default=None, help="file of the plot; by default OUT/controls.svg")
    parser.add_argument("--quick", type=bool, default=False, help="one seed and two steps: checks that all arms run")
    options = parser.parse_args(arguments)
    if unknown := set(options.controls) - set(MEASURES):
        parser.error(f"no control {sorted(unknown)[0]!r}; there are {', '.join(MEASURES)}")
    points = [point for point in all_points() if not options.controls or point.control in options.controls]
    if options.quick:
        points = [reduced(point) for point in points if point.seed == 1]
    out = Path(options.out)
    results = run_all(points, out, options.jobs)
    atomic_write(Path(options.table or out / "controls_table.md"), table(results))
    draw(results, Path(options.plot or out / "controls.svg"))


if __name__ == "__main__":
    prepare_process()
    main()
