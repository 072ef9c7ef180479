"""`precis sweep FILE`: check every point of a grid, then run those that are not finished."""
import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import PositiveInt

from datamodules.documents import CorpusError
from datamodules.text.printable import printable_line
from experiments.shipped import SWEEPS, find_shipped
from experiments.sweeping.grid import Point, Sweep, flags, read_sweep
from experiments.sweeping.job import COMMAND, Job, is_finished, same_suite, take_lock
from experiments.sweeping.launch import launch
from experiments.sweeping.slurm import Profile, check_devices, check_directives, submit
from experiments.sweeping.sweep_commands import COMMANDS
from experiments.sweeping.sweep_folder import LOCK, TO_RETRY, jobs_of, read_launch, record, states, write_launch


def dry_run(sweep: Sweep, points: list[Point], jobs: list[Job]) -> Iterator[str]:
    """Yield the commands of each point, as they can be typed, and the number of points."""
    for point, job in zip(points, jobs):
        # The output may be piped to a shell, so that a label must not contain line breaks.
        yield f"# {printable_line(point.label)}" + (" (finished)" if is_finished(job) else "")
        fit = ["precis", "fit", f"--config={sweep.base}", *flags(point.overrides), f"--run_dir={job.folder}"]
        yield shlex.join(fit)
        yield from (shlex.join(["precis", *arguments]) for _, arguments in job.stages()[1:])
    num_finished = sum(map(is_finished, jobs))
    yield f"{len(jobs)} points: {num_finished} finished, {len(jobs) - num_finished} to run"


def sweep(arguments: list[str]) -> None:
    """`precis sweep FILE`: check every point of a grid, then run those that are not finished, some at a time.

    The local launcher lets its runs save on Ctrl-C or SIGTERM; the same command continues them. With --launcher slurm,
    the command submits one job array and returns; --detach returns too, with local runs in the background.
    `precis sweep status FOLDER` shows the state of the points; `logs`, `cancel` and `retry` FOLDER also exist;
    `render FILE` writes it for other schedulers."""
    name = arguments[0] if arguments else ""
    if name in COMMANDS:
        COMMANDS[name](arguments[1:])
    elif name == "retry":
        retry(arguments[1:])
    else:
        start(arguments)


def start(arguments: list[str]) -> None:
    """`precis sweep FILE`."""
    parser = ArgumentParser(prog="precis sweep", description=sweep.__doc__, exit_on_error=False)
    parser.add_argument("file", type=Path, help="a sweep file, or the short name of one of the suite, such as "
                        "pointer_generator_rows")  # fmt: skip
    parser.add_argument("--out", type=Path | None, default=None, help="sweep folder; by default runs/NAME of FILE")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and their number, start nothing")
    _add_launcher(parser, "local")
    options = parser.parse_args(arguments)
    file = read_sweep(find_shipped(str(options.file), SWEEPS))
    out = Path(str(options.out)) if options.out else Path("runs") / file.path.stem
    from experiments.sweeping.buildable import check_buildable  # these import torch and Lightning
    from experiments.sweeping.composition import compose

    points = compose(file)
    jobs = jobs_of(file, points, out)
    if options.launcher == "slurm":
        check_devices(_profile(options), jobs)
    check_buildable((point.label, point.config) for point in points)
    if options.dry_run:
        print("\n".join(dry_run(file, points, jobs)))
        return
    record(file, points, out)
    _launch(out, jobs, options)


def retry(arguments: list[str]) -> None:
    """`precis sweep retry FOLDER`: run the points that failed, were interrupted or were never started.

    Launcher and profile are those of the last launch by default."""
    parser = ArgumentParser(prog="precis sweep retry", description=retry.__doc__, exit_on_error=False)
    parser.add_argument("folder", type=Path, help="a sweep folder, such as runs/NAME")
    _add_launcher(parser, None)
    options = parser.parse_args(arguments)
    out = Path(str(options.folder))
    points, last_launch = states(out), read_launch(out)
    chosen = [point.job for point in points if point.state in TO_RETRY]
    labels = [f"  {printable_line(job.label)}" for job in chosen]
    print("\n".join([f"{len(points)} points, {len(chosen)} to run", *labels]), flush=True)
    options.launcher = options.launcher or last_launch["launcher"] or "local"
    if not any(word.startswith("--profile") for word in arguments) and "profile" in last_launch:
        options.profile = Namespace(last_launch["profile"])
    if options.launcher == "slurm":
        check_devices(_profile(options), chosen)
    if chosen:
        _launch(out, chosen, options)


def _add_launcher(parser: ArgumentParser, default: str | None) -> None:
    kinds = "processes of this machine, or a SLURM job array"
    parser.add_argument("--launcher", type=Literal["local", "slurm"] | None, default=default, help=kinds)
    parser.add_argument("--jobs", type=PositiveInt, default=1, help="local: number of runs at a time")
    parser.add_argument("--detach", action="store_true", help="local: run in the background and return at once")
    parser.add_argument("--profile", type=Profile, default=Profile(), help="slurm: resources of a job")


def _profile(options: Namespace) -> Profile:
    profile = Profile(**{name: getattr(options.profile, name) for name in Profile.__dataclass_fields__})
    check_directives(profile)
    return profile


def _launch(out: Path, jobs: Sequence[Job], options: Namespace) -> None:
    if options.launcher == "slurm":
        _submit(out, jobs, _profile(options))
    elif options.detach:
        _detach(out, options.jobs)
    else:
        _run_here(out, jobs, options.jobs)


def _submit(out: Path, jobs: Sequence[Job], profile: Profile) -> None:
    """Submit one array of the points that are neither finished nor in the queue."""
    names = {job.folder.name for job in jobs}
    missing = [p for p in states(out) if p.job.folder.name in names and p.state in TO_RETRY]
    if missing:
        absolute = [Job(p.job.label, p.job.folder.resolve(), p.job.config, p.job.after) for p in missing]
        numbers = submit(absolute, profile, out.resolve() / "slurm", out.resolve().name)
        write_launch(out, "slurm", numbers, profile=_as_dict(profile))
        print(f"submitted {len(missing)} points as job {_first(numbers)}, {profile.concurrency} at a time")
    print(f"{len(jobs)} points, {len(missing)} submitted; precis sweep status {out} shows their state")


def _as_dict(profile: Profile) -> dict[str, Any]:
    return {name: getattr(profile, name) for name in Profile.__dataclass_fields__}


def _first(numbers: dict[str, str]) -> str:
    return next(iter(numbers.values())).split("_")[0]


def _run_here(out: Path, jobs: Sequence[Job], slots: int) -> None:
    lock = take_lock(out / LOCK)  # held while this process lives, so that `status` shows its points as waiting
    if lock is None:
        raise CorpusError(f"{out}: another launcher is running this sweep; precis sweep status {out} shows it")
    try:
        write_launch(out, "local", {}, pid=os.getpid())
        launch(jobs, slots)
    finally:
        os.close(lock)


def _detach(out: Path, slots: int) -> None:
    """Run `precis sweep retry` in a separate session."""
    command = [*COMMAND, "sweep", "retry", str(out), "--launcher=local", f"--jobs={slots}"]
    with (out / "launcher.log").open("a", encoding="utf-8") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=same_suite(os.environ),
            start_new_session=True,
        )
    print(f"process {process.pid} runs the points; precis sweep status {out} shows their state")
