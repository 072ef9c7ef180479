"""Task of a SLURM job, which runs the commands of one point; submitit starts it on the compute node.

Task 0 writes status.json and log.txt, holds the lock, and runs all commands. Other tasks run those that train or
predict, and write log.rankN.txt. On a signal the command saves and stops; then task 0 requeues the job.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

from experiments.requeue import requeue
from experiments.sweeping.job import COMMAND, Job, Running, read_status, same_suite

SIGNALS = (signal.SIGUSR1, signal.SIGTERM)  # before the time limit, and at a preemption
TOGETHER = ("fit", "validate", "test", "predict")  # commands of all tasks
WITHIN = 2.0  # seconds in which a signal that ended a command reaches this process too


def work(job: Job) -> str:
    """Run the commands of a point that were not successful yet, and return the final state.

    Raises:
        RuntimeError: if one failed, so that SLURM is informed.
    """
    received: list[int] = []
    for number in SIGNALS:
        signal.signal(number, lambda number, _: received.append(number))
    signal.signal(signal.SIGCONT, signal.SIG_IGN)
    rank = int(os.environ.get("SLURM_PROCID", "0"))
    return _lead(job, received) if rank == 0 else _follow(job, rank, received)


def _environment() -> dict[str, str]:
    # this process puts the job back into the queue, its commands do not
    environment = same_suite(os.environ) | {"PRECIS_REQUEUE": "off"}
    if cpus := os.environ.get("SLURM_CPUS_PER_TASK"):
        environment.setdefault("OMP_NUM_THREADS", cpus)
    return environment


def _failure(job: Job, rank: int | str) -> Path:
    """Return the file by which a task other than 0 reports a failure, with a different name for each start."""
    start = f"{os.environ.get('SLURM_JOB_ID', '')}.{os.environ.get('SLURM_RESTART_COUNT', '0')}"
    return job.folder / f".failed.{start}.rank{rank}"


def _lead(job: Job, received: list[int]) -> str:
    run = Running(job, _environment(), COMMAND, own_session=False)
    other = ""  # a task that failed
    while run.state == "running":
        if run.process.poll() in {*(-number for number in SIGNALS), *(128 + number for number in SIGNALS)}:
            _wait_for(received)
        if received and not run.stopping:
            run.stop(received[0])
        if not run.stopping and not other:
            other = _failed_task(job)
            if other:
                run.kill()
        run.poll()
        time.sleep(0.1)
    if run.state == "stopped":
        return "requeued" if requeue(job.folder) else "stopped"
    if run.state != "finished":
        where = job.folder / f"log.{other}.txt" if other else job.log
        raise RuntimeError(f"{job.label}: {run.stage or 'the run'} {run.state}, see {where}")
    return run.state


def _failed_task(job: Job) -> str:
    """Return the name of a failed task, such as rank1; empty if there is none."""
    others = sorted(job.folder.glob(_failure(job, "*").name))
    for path in others:
        path.unlink(missing_ok=True)
    return others[0].name.rpartition(".")[2] if others else ""


def _wait_for(received: list[int]) -> None:
    until = time.monotonic() + WITHIN
    while not received and time.monotonic() < until:
        time.sleep(0.05)


def _follow(job: Job, rank: int, received: list[int]) -> str:
    """Run commands as a task other than 0; never raises, because srun would kill task 0 before it reports."""
    done = read_status(job.folder)["done"]
    for name, arguments in job.stages():
        if name in done or arguments[0] not in TOGETHER:
            continue
        with (job.folder / f"log.rank{rank}.txt").open("a", encoding="utf-8") as log:
            process = subprocess.Popen(
                [*COMMAND, *arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=_environment()
            )
            told = False
            while process.poll() is None:
                if received and not told:
                    process.send_signal(received[0])
                    told = True
                time.sleep(0.1)
        if process.returncode:
            _wait_for(received)
            if not received:
                _failure(job, rank).touch()
            return "stopped"
    return "finished"
