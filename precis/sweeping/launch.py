"""Local launcher: runs missing and interrupted jobs in several processes."""

import os
import signal
import time
from collections import deque
from collections.abc import Sequence

from datamodules.documents import UserError
from datamodules.text.lines import counted
from precis.sweeping.job import COMMAND, Job, Running, WorkerJob, is_finished, same_suite
from precis.sweeping.progress import Progress, last_line, last_metrics


def run_environment(slot: int, slots: int) -> dict[str, str]:
    """Return the environment of a run that shares the machine: its cores and GPUs, and this installation."""
    # Inside a SLURM allocation, the runs must not take themselves for tasks of its job.
    environment = {name: value for name, value in same_suite(os.environ).items() if not name.startswith("SLURM_")}
    if slots > 1:
        environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // slots)))
        gpus = _visible_gpus()
        if len(gpus) > 1:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[slot::slots] or [gpus[slot % len(gpus)]])
    return environment


def _visible_gpus() -> list[str]:
    if listed := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return listed.split(",")
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


# Launching -------------------------------------------------------------------------------------------------------


class _Signals:
    """Context that counts SIGINT, SIGTERM and SIGHUP."""

    NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __enter__(self) -> "_Signals":
        self.count = 0
        self.before = {number: signal.signal(number, self._add) for number in self.NUMBERS}
        return self

    def _add(self, *_: object) -> None:
        self.count += 1

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


def launch(jobs: Sequence[Job], slots: int = 1, command: Sequence[str] = COMMAND) -> None:
    """Run unfinished jobs, `slots` at a time; a failure does not stop the others.

    The first Ctrl-C or SIGTERM asks the runs to save and stop, the second one kills them.

    Raises:
        UserError: if runs failed or run elsewhere, with the log of the first.
        SystemExit: 130, if it was stopped.
    """
    progress = Progress([job.label for job in jobs])
    waiting = deque(job for job in jobs if not is_finished(job))
    running: dict[int, Running] = {}  # by slot
    finished_jobs = [(job, "finished") for job in jobs if is_finished(job)]
    for job, _ in finished_jobs:
        progress.update(job.label, "finished before")
    with _Signals() as signals, progress:
        sent_signals = 0
        while running or (waiting and not signals.count):
            if waiting and len(running) < slots and not signals.count:
                slot = min(set(range(slots)) - set(running))
                running[slot] = Running(waiting.popleft(), run_environment(slot, slots), command)
            for slot, run in list(running.items()):
                if not run.poll():
                    del running[slot]
                    finished_jobs.append((run.job, run.state))
                progress.update(run.job.label, *_describe(run))
            if sent_signals < min(signals.count, 2):
                sent_signals = min(signals.count, 2)
                for run in running.values():
                    run.stop() if sent_signals == 1 else run.kill()
            if len(running) == slots or not waiting or signals.count:
                time.sleep(0.1)
    _conclude(finished_jobs, jobs, bool(signals.count))


def _describe(run: Running) -> tuple[str, str]:
    """Return state and detail of a run for the progress table."""
    if run.state == "failed":
        return "failed", f"{last_line(run.job.log)} ({run.job.log})"
    if run.state == "running":
        if isinstance(run.job, WorkerJob):
            return "running", last_line(run.job.log)
        return run.stage, last_metrics(run.job.folder) if run.stage == "fit" else ""
    return run.state, ""


def _conclude(finished_jobs: list[tuple[Job, str]], jobs: Sequence[Job], stopped: bool) -> None:
    by_state: dict[str, list[Job]] = {}
    for job, state in finished_jobs:
        by_state.setdefault(state, []).append(job)
    if len(finished_jobs) < len(jobs):
        by_state["waiting"] = [job for job in jobs if all(job is not ended_job for ended_job, _ in finished_jobs)]
    counts = ", ".join(f"{len(jobs_in_state)} {state}" for state, jobs_in_state in by_state.items())
    kind = jobs[0].KIND if jobs else Job.KIND
    print(f"{counted(len(jobs), kind[:-1])}: {counts}")
    if stopped:
        print("stopped; the same command continues")
        raise SystemExit(130)
    if failed := by_state.get("failed"):
        raise UserError(
            f"{len(failed)} of {len(jobs)} {kind} failed; the first is {failed[0].label!r}, see {failed[0].log}; "
            f"the same command runs the missing {kind}"
        )
    if elsewhere := by_state.get("elsewhere"):
        raise UserError(f"{elsewhere[0].folder}: another launch is running this point; wait until it has ended")
