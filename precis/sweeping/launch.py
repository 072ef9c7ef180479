"""Local launcher: runs missing and interrupted jobs in several processes."""

import os
import signal
import time
from collections import Counter, deque
from collections.abc import Sequence

from datamodules.documents import UserError
from datamodules.text.lines import counted
from precis.sweeping.job import COMMAND, Job, Running, is_finished, received_signals, same_suite
from precis.sweeping.sweep_folder import last_line, print_state


def run_environment(slot: int, slots: int) -> dict[str, str]:
    """Return the environment of run `slot`, from 0, of `slots` simultaneous ones, which divide the cores and GPUs."""
    # `same_suite`: runs import this installation. Without SLURM's variables, they do not act as tasks of a SLURM job.
    environment = {name: value for name, value in same_suite(os.environ).items() if not name.startswith("SLURM_")}
    if slots > 1:
        environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // slots)))  # unless already set
        if listed := os.environ.get("CUDA_VISIBLE_DEVICES"):
            gpus = listed.split(",")
        else:
            import torch

            gpus = [str(number) for number in range(torch.cuda.device_count())]
        if len(gpus) > 1:
            # Every `slots`-th GPU. With more slots than GPUs, slots without a GPU of their own share one.
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[slot::slots] or [gpus[slot % len(gpus)]])
    return environment


def launch(jobs: Sequence[Job], slots: int = 1, command: Sequence[str] = COMMAND) -> None:
    """Run unfinished jobs, `slots` at a time; a failure does not stop the others, but raises a `UserError` at the end.

    The first Ctrl-C, SIGTERM or SIGHUP asks the runs to save and stop, the second one kills them; then this process
    exits with status 130, as shells do after Ctrl-C. `command` starts precis.
    """
    waiting = deque(job for job in jobs if not is_finished(job))
    running: dict[int, Running] = {}  # by slot
    printed_stages: dict[Running, str] = {}  # the command of each run that was printed last
    ended = [(job, "finished") for job in jobs if is_finished(job)]
    for job, _ in ended:
        print_state(job.label, "finished before")
    with received_signals(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as received:
        sent_signals = 0
        while running or (waiting and not received):
            if waiting and len(running) < slots and not received:
                slot = min(set(range(slots)) - set(running))  # the first free one
                running[slot] = Running(waiting.popleft(), run_environment(slot, slots), command)
            for slot, run in list(running.items()):
                if run.poll():  # still running
                    if run.stage != printed_stages.get(run):
                        print_state(run.job.label, run.stage)
                        printed_stages[run] = run.stage
                    continue
                del running[slot]
                ended.append((run.job, run.state))
                detail = f"{last_line(run.job.log)} ({run.job.log})" if run.state == "failed" else ""
                print_state(run.job.label, run.state, detail)
            if sent_signals < min(len(received), 2):  # SIGTERM at the first signal, SIGKILL at the second
                sent_signals = min(len(received), 2)
                for run in running.values():
                    run.stop() if sent_signals == 1 else run.kill()
            if len(running) == slots or not waiting or received:  # otherwise, the next job starts at once
                time.sleep(0.1)  # seconds
    _conclude(ended, jobs, bool(received))


def _conclude(ended: list[tuple[Job, str]], jobs: Sequence[Job], stopped: bool) -> None:
    """Print how many `jobs` are in each state, by (job, state) in `ended`; raise an error if any is unfinished."""
    counts = Counter(state for _, state in ended)
    if len(ended) < len(jobs):
        counts["waiting"] = len(jobs) - len(ended)  # not started before the launcher was stopped
    number = counted(len(jobs), jobs[0].KIND if jobs else Job.KIND)
    print(f"{number}: " + ", ".join(f"{count} {state}" for state, count in counts.items()))
    if stopped:
        print("stopped; the same command continues")
        raise SystemExit(130)  # the status of shells after Ctrl-C
    first_by_state = {state: job for job, state in reversed(ended)}  # reversed: the first job of a state wins
    if job := first_by_state.get("failed"):
        failed = f"{counts['failed']} of {number} failed; the first is {job.label!r}, see {job.log}"
        raise UserError(f"{failed}; the same command runs what is missing")
    if job := first_by_state.get("elsewhere"):
        raise UserError(f"{job.folder}: another launch is running this point; wait until it has ended")
