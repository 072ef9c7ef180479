"""SLURM job arrays of points: resources of a job, submission, state in the queue, and the tasks of a job.

Accounting (`sacct`) is not needed: the state of jobs that have left the queue is in their run folders. Task 0 of a job
writes status.json and log.txt, holds the lock, and runs all commands. Other tasks run those that train or predict, and
write log.rankN.txt. On a signal the command saves and stops; then task 0 requeues the job.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from jsonargparse.typing import NonNegativeInt, PositiveInt

from datamodules.documents import UserError
from datamodules.text.lines import printable_line
from precis.sweeping.job import COMMAND, Job, Running, is_signal_status, read_status, received_signals, same_suite
from precis.training.requeue import ask_slurm, requeue

SIGNALS = (signal.SIGUSR1, signal.SIGTERM)  # sent before the time limit, and at a preemption
MULTI_TASK_COMMANDS = ("fit", "validate", "test", "predict")  # run by all tasks
SIGNAL_WAIT_SECONDS = 2.0  # a signal that ended a command reaches this process within this time


@dataclass
class Profile:
    """Resources of the job of a point: a YAML file with these keys, or flags.

    Args:
        partition: partition; the default of the cluster if not set.
        minutes: time limit; a run that is not finished by then saves, is requeued and continues.
        nodes: number of nodes for a point.
        tasks_per_node: number of processes per node, one per device: trainer.devices must be equal.
        gpus_per_node: number of GPUs per node.
        cpus_per_task: number of cores per process.
        memory: memory per node, such as 32G; the default of the cluster if not set.
        concurrency: maximum number of points that run at the same time.
        save_seconds: time before the limit at which SLURM sends SIGUSR1, so that a run saves.
        directives: any other options of sbatch, without dashes: {account: nlp, constraint: a100}.
        setup: lines of the batch script before the run, such as module load cuda.
    """

    partition: str | None = None
    minutes: PositiveInt = 60
    nodes: PositiveInt = 1
    tasks_per_node: PositiveInt = 1
    gpus_per_node: NonNegativeInt = 0
    cpus_per_task: PositiveInt = 1
    memory: str | None = None
    concurrency: PositiveInt = 8
    save_seconds: PositiveInt = 120
    directives: dict[str, Any] = field(default_factory=dict)
    setup: list[str] = field(default_factory=list)


def check_devices(profile: Profile, jobs: Iterable[Job]) -> None:
    """Raise a `UserError` unless a profile has as many nodes as each job's trainer, and one task for each device."""
    from precis.training.cluster_tasks import number_of_devices  # imports torch

    for job in jobs:
        trainer = job.config.get("trainer") or {}
        needed = {"tasks_per_node": number_of_devices(trainer), "nodes": trainer.get("num_nodes", 1)}
        for name, key in (("tasks_per_node", "devices"), ("nodes", "num_nodes")):
            number = getattr(profile, name)
            if needed[name] not in (None, number):  # None: the trainer takes all devices
                problem = f"trainer.{key} is {needed[name]}, but the profile has {name} {number}"
                remedy = f"give --profile.{name} {needed[name]}, or trainer.{key}: {number} in the sweep"
                raise UserError(f"point {job.label!r}: {problem}; {remedy}")


def checked_profile(options: Any) -> Profile:
    """Return parsed options as a profile; a `UserError` for a line break in a value, which could begin a command."""
    profile = Profile(**{field.name: getattr(options, field.name) for field in fields(Profile)})
    values = {"partition": profile.partition, "memory": profile.memory}
    for key, value in profile.directives.items():
        if not re.fullmatch(r"[A-Za-z][\w-]*", key):
            raise UserError(f"profile: directives: {key!r} is not an option of sbatch; give its name without dashes")
        if not isinstance(value, str | int | float | bool):
            raise UserError(f"profile: directives.{key} must be one value, got {value!r}")
        values[f"directives.{key}"] = value
    for key, value in values.items():  # `setup` has commands by design
        if isinstance(value, str) and printable_line(value) != value:
            raise UserError(f"profile: {key}: {value!r} has a line end or another control character; leave it out")
    return profile


def submit(jobs: Sequence[Job], profile: Profile, folder: Path, name: str) -> dict[str, str]:
    """Submit jobs as an array `name`, with batch scripts and output in `folder`; return SLURM's ids by run folder name.

    More jobs than SLURM's MaxArraySize become several arrays, each of which waits for the one before, so that the
    limit `profile.concurrency` holds for all jobs together. If SLURM refuses an array, the earlier ones are canceled.

    Raises:
        UserError: if there is no SLURM, or it refuses.
    """
    try:
        import submitit
        from submitit.core.utils import FailedJobError
    except ImportError:
        raise UserError("--launcher slurm needs submitit; pip install 'precis-suite[slurm]'") from None
    if shutil.which("sbatch") is None:
        raise UserError("no SLURM here (no sbatch on PATH); log in to a node that has it, or use --launcher local")
    for job in jobs:
        job.check_links()
        job.prepare()  # writes the config, before any task reads it
    ids: list[str] = []
    size = _max_array_size()  # maximum number of jobs in an array
    try:
        for start in range(0, len(jobs), size):
            executor = submitit.SlurmExecutor(folder=folder)
            executor.update_parameters(**_parameters(profile, name, after=ids[-1] if ids else None))
            ids += [str(job.job_id) for job in executor.map_array(work, list(jobs[start : start + size]))]
    except RuntimeError as error:
        if ids:
            cancel(ids)
        if isinstance(error, FailedJobError):
            raise UserError(f"SLURM refuses the job: {_short_error(str(error))}; change the profile") from None
        raise UserError(f"no SLURM here ({error}); log in to a node that has it, or use --launcher local") from None
    return {job.folder.name: job_id for job, job_id in zip(jobs, ids)}


def _max_array_size() -> int:
    """Return SLURM's MaxArraySize, the limit on the number of jobs in an array."""
    config = ask_slurm("scontrol", "show", "config").stdout
    setting = re.search(r"^MaxArraySize\s*=\s*(\d+)", config, re.MULTILINE)
    return int(setting[1]) if setting else 1001  # the default of SLURM


def _parameters(profile: Profile, name: str, after: str | None) -> dict[str, Any]:
    """Return submitit's parameters for a job array `name`, which waits for the array of the job id `after`, if any."""
    root = Path(__file__).parents[2]  # folder that contains precis
    # Jobs import this installation of the suite, and no module from the working folder.
    path = f"export PYTHONSAFEPATH=1 PYTHONPATH={shlex.quote(str(root))}${{PYTHONPATH:+:$PYTHONPATH}}"
    # `signal` sends SIGUSR1 to all tasks before the time limit, so that they save; `requeue` permits requeueing.
    directives = {"signal": f"USR1@{profile.save_seconds}", "requeue": True} | profile.directives
    directives = {key: value for key, value in directives.items() if value is not False}  # false leaves an option out
    if after is not None:
        conditions = [directives["dependency"]] if "dependency" in directives else []
        directives["dependency"] = ",".join([*conditions, f"afterany:{after.partition('_')[0]}"])  # the array's id
    return {
        "job_name": name,
        "partition": profile.partition,
        "time": profile.minutes,  # a plain number is minutes in SLURM
        "nodes": profile.nodes,
        "ntasks_per_node": profile.tasks_per_node,
        "cpus_per_task": profile.cpus_per_task,
        "gpus_per_node": profile.gpus_per_node or None,  # None leaves the option out
        "mem": profile.memory,
        "array_parallelism": profile.concurrency,
        "wckey": None,  # by default, submitit sets one
        "stderr_to_stdout": True,
        "setup": [path, *profile.setup],
        # Kill all tasks if one fails, since others would wait for it; and srun does not inherit cores from sbatch.
        "srun_args": ["--kill-on-bad-exit=1", f"--cpus-per-task={profile.cpus_per_task}"],
        "additional_parameters": {key.replace("-", "_"): value for key, value in directives.items()},  # submitit's form
    }


def _short_error(text: str) -> str:
    """Return the lines with "error" in the output of a command, or else all of it, cut to 400 characters."""
    lines = [line.strip() for line in text.splitlines() if "error" in line.lower()]
    return " ".join(lines or text.split())[:400]


def queue(jobs: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return by id the (state, reason) of jobs in the queue, such as ("PENDING", "Priority"); empty without SLURM."""
    ids = {job for job in jobs if job}  # an id is empty if a point was not submitted
    if not ids:
        return {}
    command = ["squeue", "--noheader", "--array", "--me", "--format=%i|%T|%r"]  # id|state|reason; --array: per index
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=120)  # seconds
    except FileNotFoundError:  # there is no SLURM here
        return {}
    except subprocess.TimeoutExpired:
        raise UserError("SLURM's queue does not answer (squeue); try again later") from None
    if process.returncode:
        raise UserError(f"SLURM's queue does not answer: {_short_error(process.stderr)}; try again later")
    lines = (line.split("|", 2) for line in process.stdout.splitlines())
    return {job: (state, reason) for job, state, reason in lines if job in ids}


def cancel(jobs: Sequence[str]) -> None:
    """Cancel jobs by id; SLURM signals running ones, so that they save first."""
    process = subprocess.run(["scancel", *jobs], capture_output=True, text=True)
    if process.returncode:
        raise UserError(f"SLURM does not cancel: {_short_error(process.stderr)}")


def work(job: Job) -> str:
    """Run those commands of a point that were not yet successful, as a SLURM task; raise an error if one fails."""
    signal.signal(signal.SIGCONT, signal.SIG_IGN)  # SLURM sends it before SIGTERM; submitit would only log it
    rank = int(os.environ.get("SLURM_PROCID", "0"))
    with received_signals(*SIGNALS) as received:
        return _run_first_task(job, received) if rank == 0 else _run_other_task(job, rank, received)


def _environment() -> dict[str, str]:
    """Return environment variables for a command in a task, with one thread for each core of the task."""
    environment = same_suite(os.environ)
    if cpus := os.environ.get("SLURM_CPUS_PER_TASK"):
        environment.setdefault("OMP_NUM_THREADS", cpus)
    return environment


def _failure_file(job: Job, rank: int | str) -> Path:
    """Return the file that task `rank` writes to tell task 0 that it failed; its name changes with each requeue."""
    start = f"{os.environ.get('SLURM_JOB_ID', '')}.{os.environ.get('SLURM_RESTART_COUNT', '0')}"
    return job.folder / f".failed.{start}.rank{rank}"


def _run_first_task(job: Job, received: list[int]) -> str:
    """Run commands as task 0; return finished, stopped or requeued, or raise an error; `received`: signals so far."""
    run = Running(job, _environment(), COMMAND, own_session=False)
    failed_task = ""  # name of another task that failed, such as rank1
    while run.state == "running":
        if is_signal_status(run.process.poll()):
            _wait_for_signal(received)  # if a signal ended the command, it may reach this process later
        if received and not run.stopping:
            run.stop(received[0])
        if not run.stopping and not failed_task:
            failed_task = _failed_task(job)
            if failed_task:
                run.kill()  # the command would wait for the other task
        run.poll()
        time.sleep(0.1)  # seconds
    if run.state == "stopped":
        return "requeued" if requeue(job.folder, job.progress_file) else "stopped"
    if run.state != "finished":
        where = job.folder / f"log.{failed_task}.txt" if failed_task else job.log
        raise RuntimeError(f"{job.label}: {run.stage or 'the run'} {run.state}, see {where}")
    return run.state


def _failed_task(job: Job) -> str:
    """Return the name of a failed task, such as rank1, and delete all files that report failures; empty if none."""
    markers = sorted(job.folder.glob(_failure_file(job, "*").name))
    for path in markers:
        path.unlink(missing_ok=True)
    return markers[0].name.rpartition(".")[2] if markers else ""  # .failed.JOB.RESTART.rank1


def _wait_for_signal(received: list[int]) -> None:
    """Wait until a signal has reached this process, for at most `SIGNAL_WAIT_SECONDS`."""
    until = time.monotonic() + SIGNAL_WAIT_SECONDS
    while not received and time.monotonic() < until:
        time.sleep(0.05)


def _run_other_task(job: Job, rank: int, received: list[int]) -> str:
    """Run commands as a task other than 0; never raise, or srun would kill task 0 before it reports the failure."""
    finished_stages = read_status(job.folder)["done"]
    for name, arguments in job.stages():
        if name in finished_stages or arguments[0] not in MULTI_TASK_COMMANDS:
            continue  # successful before, or a command that only task 0 runs
        with (job.folder / f"log.rank{rank}.txt").open("a", encoding="utf-8") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            process = subprocess.Popen([*COMMAND, *arguments], env=_environment(), **streams)
            while process.poll() is None and not received:
                time.sleep(0.1)  # seconds
            if received:  # the command, unless it has ended, stops at the first signal
                process.send_signal(received[0])
            process.wait()
        if process.returncode:
            _wait_for_signal(received)  # if a signal ended the command, it may reach this process later
            if not received:  # the command failed by itself
                _failure_file(job, rank).touch()  # tells task 0
            return "stopped"
    return "finished"
