"""Task of a SLURM job, which runs the commands of one point; submitit starts it on the compute node.

Task 0 writes status.json and log.txt, holds the lock, and runs all commands. Other tasks run those that train or
predict, and write log.rankN.txt. On a signal the command saves and stops; then task 0 requeues the job.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

from precis.sweeping.job import COMMAND, Job, Running, is_signal_status, read_status, received_signals, same_suite
from precis.training.requeue import requeue

SIGNALS = (signal.SIGUSR1, signal.SIGTERM)  # sent before the time limit, and at a preemption
MULTI_TASK_COMMANDS = ("fit", "validate", "test", "predict")  # run by all tasks
SIGNAL_WAIT_SECONDS = 2.0  # a signal that ended a command reaches this process within this time


def work(job: Job) -> str:
    """Run the commands of a point that were not successful yet, and return the final state.

    Raises:
        RuntimeError: if one failed, so that SLURM is informed.
    """
    signal.signal(signal.SIGCONT, signal.SIG_IGN)
    rank = int(os.environ.get("SLURM_PROCID", "0"))
    with received_signals(*SIGNALS) as received:
        return _run_first_task(job, received) if rank == 0 else _run_other_task(job, rank, received)


def _environment() -> dict[str, str]:
    # This process requeues the job; its commands must not do so.
    environment = same_suite(os.environ) | {"PRECIS_REQUEUE": "off"}
    if cpus := os.environ.get("SLURM_CPUS_PER_TASK"):
        environment.setdefault("OMP_NUM_THREADS", cpus)
    return environment


def _failure(job: Job, rank: int | str) -> Path:
    """Return the file by which a task other than 0 reports a failure, with a different name for each start."""
    start = f"{os.environ.get('SLURM_JOB_ID', '')}.{os.environ.get('SLURM_RESTART_COUNT', '0')}"
    return job.folder / f".failed.{start}.rank{rank}"


def _run_first_task(job: Job, received: list[int]) -> str:
    run = Running(job, _environment(), COMMAND, own_session=False)
    failed_task = ""
    while run.state == "running":
        if is_signal_status(run.process.poll()):
            _wait_for(received)
        if received and not run.stopping:
            run.stop(received[0])
        if not run.stopping and not failed_task:
            failed_task = _failed_task(job)
            if failed_task:
                run.kill()
        run.poll()
        time.sleep(0.1)
    if run.state == "stopped":
        return "requeued" if requeue(job.folder, job.progress_file) else "stopped"
    if run.state != "finished":
        where = job.folder / f"log.{failed_task}.txt" if failed_task else job.log
        raise RuntimeError(f"{job.label}: {run.stage or 'the run'} {run.state}, see {where}")
    return run.state


def _failed_task(job: Job) -> str:
    """Return the name of a failed task, such as rank1; empty if there is none."""
    markers = sorted(job.folder.glob(_failure(job, "*").name))
    for path in markers:
        path.unlink(missing_ok=True)
    return markers[0].name.rpartition(".")[2] if markers else ""


def _wait_for(received: list[int]) -> None:
    until = time.monotonic() + SIGNAL_WAIT_SECONDS
    while not received and time.monotonic() < until:
        time.sleep(0.05)


def _run_other_task(job: Job, rank: int, received: list[int]) -> str:
    """Run commands as a task other than 0; never raises, because srun would kill task 0 before it reports."""
    finished_stages = read_status(job.folder)["done"]
    for name, arguments in job.stages():
        if name in finished_stages or arguments[0] not in MULTI_TASK_COMMANDS:
            continue
        with (job.folder / f"log.rank{rank}.txt").open("a", encoding="utf-8") as log:
            process = subprocess.Popen(
                [*COMMAND, *arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=_environment()
            )
            signalled = False
            while process.poll() is None:
                if received and not signalled:
                    process.send_signal(received[0])
                    signalled = True
                time.sleep(0.1)
        if process.returncode:
            _wait_for(received)
            if not received:
                _failure(job, rank).touch()
            return "stopped"
    return "finished"
