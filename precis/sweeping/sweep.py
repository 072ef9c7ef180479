"""`precis sweep FILE`: check every point of a grid, then run those that are not finished."""

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import PositiveInt

from datamodules.documents import UserError
from datamodules.file_locks import release_lock, take_lock
from datamodules.text.lines import counted, printable_line
from precis.config.shipped import SWEEPS, find_shipped, short_names
from precis.config.written_paths import check_links
from precis.sweeping import sweep_folder
from precis.sweeping.grid import Point, Sweep, flags, read_sweep
from precis.sweeping.job import Job, is_finished
from precis.sweeping.launch import launch
from precis.sweeping.rendering import render
from precis.sweeping.search import compose_search, record_search, work
from precis.sweeping.slurm import Profile, check_devices, checked_profile, submit
from precis.sweeping.sweep_commands import cancel, folder_parser, logs, run_point, status
from precis.trials.search_folder import is_search


def sweep(arguments: list[str]) -> None:
    """`precis sweep FILE`: check every point of a grid, then run those that are not finished, some at a time.

    The local launcher lets its runs save on Ctrl-C or SIGTERM; the same command continues them. With --launcher slurm,
    the command submits a job array and returns. `precis sweep status FOLDER` shows the state of the points; `logs`,
    `cancel` and `retry` FOLDER also exist, `work` for searches, and `render FILE` writes a sweep for other
    schedulers."""
    name = arguments[0] if arguments else ""
    if name in COMMANDS:
        COMMANDS[name](arguments[1:])
        return
    similar = get_close_matches(name, COMMANDS, n=1, cutoff=0.7) if name.isalpha() else []  # of a mistyped command
    if similar and not Path(name).exists() and name not in short_names(SWEEPS):  # names of shipped sweeps
        raise UserError(f"precis sweep {name}: neither a command nor a sweep file; did you mean {similar[0]}?")
    parser = ArgumentParser(prog="precis sweep", description=sweep.__doc__, exit_on_error=False)
    file_help = "a sweep file, or the short name of one of the suite, such as pointer_generator_rows"
    parser.add_argument("file", type=Path, help=file_help)
    parser.add_argument("--out", type=Path | None, default=None, help="sweep folder; by default runs/NAME of FILE")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and their number, start nothing")
    _add_launcher(parser, "local")
    options = parser.parse_args(arguments)
    file = read_sweep(find_shipped(str(options.file), SWEEPS))
    out = options.out or Path("runs") / file.path.stem
    if file.search:
        _start_search(file, out, options)
    else:
        _start_points(file, out, options)


def _start_points(file: Sweep, out: Path, options: Namespace) -> None:
    """Check all points of a sweep file, write them to the folder `out`, and launch those that are not finished."""
    if is_search(out):
        raise UserError(f"{out}: has a search; pass another --out")
    from precis.sweeping.composition import check_buildable, compose  # imports torch and Lightning

    points = compose(file)
    jobs = sweep_folder.jobs_of(file, points, out)
    if options.launcher == "slurm":
        check_devices(checked_profile(options.profile), jobs)
    check_buildable((point.label, point.config) for point in points)
    if options.dry_run:
        print("\n".join(_dry_run(file, points, jobs)))
        return
    sweep_folder.record(file, points, out)
    _launch(out, jobs, options)


def _dry_run(file: Sweep, points: list[Point], jobs: list[Job]) -> Iterator[str]:
    """Yield the commands of each point as lines for a shell, then a line with the number of points."""
    for point, job in zip(points, jobs):
        # The output may be piped to a shell, so a line break in a label would begin a command.
        yield f"# {printable_line(point.label)}" + (" (finished)" if is_finished(job) else "")
        fit = ["precis", "fit", f"--config={file.base}", *flags(point.overrides), f"--run_dir={job.folder}"]
        yield shlex.join(fit)  # not stages()[0], which reads a config that is only written when the job starts
        yield from (shlex.join(["precis", *arguments]) for _, arguments in job.stages()[1:])  # after fit
    num_finished = sum(map(is_finished, jobs))
    yield f"{counted(len(jobs), 'point')}: {num_finished} finished, {len(jobs) - num_finished} to run"


def _start_search(file: Sweep, out: Path, options: Namespace) -> None:
    """Check a search (its base, and the limits of its keys), write it to the folder `out`, and launch its workers."""
    from precis.sweeping.composition import check_buildable  # imports torch and Lightning

    points = compose_search(file)
    base = points[0].config  # the other points, at the limits of the keys, are only checked
    if options.launcher == "slurm":
        profile = checked_profile(options.profile)
        if profile.nodes * profile.tasks_per_node > 1:
            raise UserError("a worker of a search is one task; give --profile.nodes 1 --profile.tasks_per_node 1")
        check_devices(profile, [Job("base of the search", Path(), base)])  # for the check only: no folder
    check_buildable((point.label, point.config) for point in points)
    if options.dry_run:
        print(shlex.join(["precis", "fit", f"--config={file.base}", *flags(file.fixed)]))
        trials = counted(file.search["trials"], "trial")
        print(f"{trials} by {file.search['sampler']} over {', '.join(file.search['keys'])}")
        return
    search = record_search(file, base, out)
    _launch(out, sweep_folder.worker_jobs(out, _num_workers(options)), options)
    if options.launcher == "local":  # in SLURM, the search goes on after this command
        from precis.sweeping.search_report import print_search

        print_search(search)


def _num_workers(options: Namespace) -> int:  # of a search
    return options.profile.concurrency if options.launcher == "slurm" else options.jobs


def retry(arguments: list[str]) -> None:
    """`precis sweep retry FOLDER`: run the points that failed, were interrupted or were never started.

    Launcher and profile are those of the last launch by default."""
    parser = folder_parser("retry", retry.__doc__)
    _add_launcher(parser, None)  # None: the launcher of the last launch, see below
    options = parser.parse_args(arguments)
    out = options.folder
    last_launch = sweep_folder.read_launch(out)
    options.launcher = options.launcher or last_launch["launcher"] or "local"  # local if there was no launch
    is_slurm = options.launcher == "slurm"
    if is_slurm and "profile" in last_launch and not any(word.startswith("--profile") for word in arguments):
        options.profile = sweep_folder.read_profile(out)
    workers = sweep_folder.worker_jobs(out, _num_workers(options)) if is_search(out) else None
    points = sweep_folder.states(out, workers)  # None: all points of the sweep
    jobs = [point.job for point in points if point.state in sweep_folder.TO_RETRY]
    labels = [f"  {printable_line(job.label)}" for job in jobs]
    number = counted(len(points), points[0].job.KIND if points else Job.KIND)  # points, or workers of a search
    print("\n".join([f"{number}, {len(jobs)} to run", *labels]), flush=True)
    if is_slurm:
        check_devices(checked_profile(options.profile), jobs)
    if jobs:
        _launch(out, jobs, options)


def _add_launcher(parser: ArgumentParser, default: str | None) -> None:
    """Add `--launcher`, `--jobs` and `--profile`; `default` is the launcher, None for that of the last launch."""
    launcher_help = "processes of this machine, or a SLURM job array"
    parser.add_argument("--launcher", type=Literal["local", "slurm"] | None, default=default, help=launcher_help)
    parser.add_argument("--jobs", type=PositiveInt, default=1, help="local: number of runs at a time")
    parser.add_argument("--profile", type=Profile, default=Profile(), help="slurm: resources of a job")


def _launch(out: Path, jobs: Sequence[Job], options: Namespace) -> None:
    """Start jobs of the sweep folder `out` on this machine, until all have ended, or submit them to SLURM."""
    for name in (sweep_folder.LOCK, "slurm"):  # file and folder that a launch writes
        check_links(out / name, out)  # raises a `UserError` if a link leads out of the folder
    if options.launcher == "slurm":
        _submit(out, jobs, checked_profile(options.profile))
    else:
        _run_here(out, jobs, options.jobs)  # options.jobs: number at a time


def _submit(out: Path, jobs: Sequence[Job], profile: Profile) -> None:
    """Submit the points that are neither finished nor in the queue as a job array, and record it in launch.json."""
    missing = [point.job for point in sweep_folder.states(out, jobs) if point.state in sweep_folder.TO_RETRY]
    kind = jobs[0].KIND
    if missing:
        # Absolute, since jobs start in another folder; not resolved, since `submit` has to see links to refuse them.
        absolute = [replace(job, folder=job.folder.absolute()) for job in missing]
        slurm_ids = submit(absolute, profile, out.resolve() / "slurm", out.resolve().name)
        sweep_folder.write_launch(out, "slurm", slurm_ids, profile=asdict(profile))
        first = next(iter(slurm_ids.values())).split("_")[0]  # ARRAY of ARRAY_INDEX
        print(f"submitted {counted(len(missing), kind)} as job {first}, {profile.concurrency} at a time")
    status = f"precis sweep status {shlex.quote(str(out))}"
    print(f"{counted(len(jobs), kind)}, {len(missing)} submitted; {status} shows their state")


def _run_here(out: Path, jobs: Sequence[Job], slots: int) -> None:
    """Run jobs on this machine, `slots` at a time, and print the best point at the end, unless it is a search."""
    lock = take_lock(out / sweep_folder.LOCK)  # while held, `status` shows points that have not started as waiting
    if lock is None:
        raise sweep_folder.launched_elsewhere(out)
    try:
        sweep_folder.write_launch(out, "local", {}, pid=os.getpid())  # {}: no SLURM ids; pid: for `cancel`
        launch(jobs, slots)
    finally:
        release_lock(lock)
    if not is_search(out):  # `_start_search` prints the best trial
        sweep_folder.conclude(out, jobs)


OF_FOLDERS = {"status": status, "logs": logs, "cancel": cancel, "retry": retry, "point": run_point, "work": work}
COMMANDS: dict[str, Callable[[list[str]], None]] = {**OF_FOLDERS, "render": render}
