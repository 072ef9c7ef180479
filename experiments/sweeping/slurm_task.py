"""What each task of a SLURM job does: the commands of one point. submitit starts it on the compute node.

Task 0 leads: it keeps status.json, log.txt and the lock, and runs all commands. Other tasks run those that train or
predict, into log.rankN.txt. A signal ends the command, which saves; then task 0 puts the job back into the queue.
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
    """Runs a point's commands that have not ended well yet; how they ended.

    Raises:
        RuntimeError: if one failed, for SLURM to know.
    """
    received: list[int] = []
    for number in SIGNALS:
        signal.signal(number, lambda number, _: received.append(number))
    signal.signal(signal.SIGCONT, signal.SIG_IGN)
    rank = int(os.environ.get("SLURM_PROCID", "0"))
    return _lead(job, received) if rank == 0 else _follow(job, rank, received)


def _environment() -> dict[str, str]:
    # this process puts the job back into the queue, its commands do not
    found = same_suite(os.environ) | {"PRECIS_REQUEUE": "off"}
    if cpus := os.environ.get("SLURM_CPUS_PER_TASK"):
        found.setdefault("OMP_NUM_THREADS", cpus)
    return found


def _failure(job: Job, rank: int | str) -> Path:
    """Where a task that is not 0 says that its command failed; another name at each start of the job."""
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
    """The name of a task that has failed, such as rank1; empty if there is none."""
    others = sorted(job.folder.glob(_failure(job, "*").name))
    for path in others:
        path.unlink(missing_ok=True)
    return others[0].name.rpartition(".")[2] if others else ""


def _wait_for(received: list[int]) -> None:
    until = time.monotonic() + WITHIN
    while not received and time.monotonic() < until:
        time.sleep(0.05)


def _follow(job: Job, rank: int, received: list[int]) -> str:
    """Never fails: srun would end task 0 before it has said anything."""
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
