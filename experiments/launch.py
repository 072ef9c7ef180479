"""Runs in local processes, some at a time: what is missing is run, what was interrupted goes on."""

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

import experiments
from datamodules.documents import CorpusError
from experiments.progress import Progress, last_line, last_metrics

COMMAND = (sys.executable, "-m", "experiments.cli")


@dataclass(frozen=True)
class Job:
    """A run that is to be there.

    Attributes:
        label: what people call it.
        folder: its run folder.
        config: every argument.
        after: commands after `fit`; `{run}` stands for the run folder, `--run FOLDER` is added where it does not stand.
    """

    label: str
    folder: Path
    config: dict[str, Any]
    after: tuple[str, ...] = ("test",)

    def stages(self) -> list[tuple[str, list[str]]]:
        """Names and arguments of its commands, in order."""
        # a log file has no use for a progress bar
        fit = ["fit", f"--config={self.folder}/point.yaml", f"--run_dir={self.folder}"]
        stages = [("fit", [*fit, "--trainer.enable_progress_bar=false"])]
        for command in self.after:
            words = [word.replace("{run}", str(self.folder)) for word in shlex.split(command)]
            stages.append((command, words if "{run}" in command else [words[0], "--run", str(self.folder), *words[1:]]))
        return stages

    @property
    def log(self) -> Path:
        """Where its commands write."""
        return self.folder / "log.txt"


def write_whole(path: Path, text: str) -> None:
    """Writes a file that is either there as a whole or as it was before."""
    partial = path.with_name(f".{path.name}.part")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


# What is known of a run ------------------------------------------------------------------------------------------


def read_status(folder: Path) -> dict[str, Any]:
    """status.json of a run folder: `done`, the commands that ended well, and `failed`, the one that did not or None."""
    path = folder / "status.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"done": [], "failed": None}


def is_finished(job: Job) -> bool:
    """Whether each of its commands has ended well."""
    return {name for name, _ in job.stages()} <= set(read_status(job.folder)["done"])


# One run ---------------------------------------------------------------------------------------------------------


class Running:
    """A run's commands, one after the other, from the first that has not ended well yet.

    Args:
        job: what to run.
        slot: its place among the runs at a time, from 0.
        slots: how many those are.
        command: what `precis` is.

    Attributes:
        state: "running", "finished", "failed", "stopped", or "elsewhere" where another launch is at work on it.
        stage: the command that runs.
    """

    def __init__(self, job: Job, slot: int, slots: int, command: Sequence[str] = COMMAND) -> None:
        self.job, self.slot, self.command, self.environment = job, slot, command, run_environment(slot, slots)
        self.state, self.stage, self.stopping = "running", "", False
        self.process: subprocess.Popen | None = None
        job.folder.mkdir(parents=True, exist_ok=True)
        # The lock goes on to the run's own process: where a launcher was killed and its runs live on, a second launch
        # does not start them beside themselves.
        self.lock = os.open(job.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._end("elsewhere")
            return
        self.done: list[str] = read_status(job.folder)["done"]
        write_whole(job.folder / "point.yaml", yaml.safe_dump(job.config, sort_keys=False, allow_unicode=True))
        self._next()

    def _next(self) -> None:
        missing = [stage for stage in self.job.stages() if stage[0] not in self.done]
        if not missing:
            self._end("finished")
            return
        if self.stopping:
            self._end("stopped")
            return
        self.stage, arguments = missing[0]
        if self.stage == "fit":
            arguments = [*arguments, *_resume(self.job.folder)]
        with self.job.log.open("a", encoding="utf-8") as log:
            log.write(f"$ {shlex.join(['precis', *arguments])}\n")
            log.flush()
            # In a session of its own: the terminal's Ctrl-C reaches the launcher alone, which tells its runs once.
            self.process = subprocess.Popen(
                [*self.command, *arguments], stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=self.environment, start_new_session=True, pass_fds=(self.lock,),
            )  # fmt: skip

    def poll(self) -> bool:
        """Goes on to the next command where one has ended; whether the run is still at work."""
        status = self.process.poll() if self.state == "running" else None
        if status == 0:
            self.done.append(self.stage)
            self._record(None)
            self._next()
        elif status is not None and self.stopping:
            self._end("stopped")
        elif status is not None:
            self._record({"command": self.stage, "status": status})
            self._end("failed")
        return self.state == "running"

    def stop(self) -> None:
        """Asks the command to save and end."""
        self.stopping = True
        self.process.terminate()

    def kill(self) -> None:
        """Ends the command and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _record(self, failed: dict[str, Any] | None) -> None:
        write_whole(self.job.folder / "status.json", json.dumps({"done": self.done, "failed": failed}) + "\n")

    def _end(self, state: str) -> None:
        self.state = state
        os.close(self.lock)


def _resume(folder: Path) -> list[str]:
    """Flags with which `fit` goes on from the last checkpoint; without one, what a start left is cleared away."""
    if (folder / "checkpoints" / "last.ckpt").is_file():
        return ["--resume=true"]
    for name in ("config.yaml", "environment.json", "metrics.csv"):
        (folder / name).unlink(missing_ok=True)
    return []


def run_environment(slot: int, slots: int) -> dict[str, str]:
    """The environment of a run that shares the machine: its share of cores and GPUs, and this very suite."""
    root = str(Path(experiments.__file__).parents[1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    found = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", "COLUMNS": "120"}
    if slots > 1:
        found.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // slots)))
        listed = os.environ.get("CUDA_VISIBLE_DEVICES")
        gpus = listed.split(",") if listed else [str(number) for number in range(torch.cuda.device_count())]
        if len(gpus) > 1:
            found["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[slot::slots] or [gpus[slot % len(gpus)]])
    return found


# All of them -----------------------------------------------------------------------------------------------------


class _Signals:
    """Counts SIGINT, SIGTERM and SIGHUP while it is entered."""

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
    """Runs the jobs that are not finished, `slots` at a time; a failure does not stop the others.

    A first Ctrl-C or SIGTERM asks the runs to save and end, a second one ends them at once.

    Raises:
        CorpusError: if runs failed or run elsewhere, with the log of the first.
        SystemExit: 130, if it was stopped.
    """
    progress = Progress([job.label for job in jobs])
    waiting = deque(job for job in jobs if not is_finished(job))
    running: list[Running] = []
    ended = [(job, "finished") for job in jobs if is_finished(job)]
    for job, _ in ended:
        progress.say(job.label, "finished before")
    with _Signals() as signals, progress:
        told = 0
        while running or (waiting and not signals.count):
            if waiting and len(running) < slots and not signals.count:
                slot = min(set(range(slots)) - {run.slot for run in running})
                running.append(Running(waiting.popleft(), slot, slots, command))
            for run in list(running):
                if not run.poll():
                    running.remove(run)
                    ended.append((run.job, run.state))
                progress.say(run.job.label, *_said(run))
            if told < min(signals.count, 2):
                told = min(signals.count, 2)
                for run in running:
                    run.stop() if told == 1 else run.kill()
            if len(running) == slots or not waiting or signals.count:
                time.sleep(0.1)
    _conclude(ended, jobs, bool(signals.count))


def _said(run: Running) -> tuple[str, str]:
    """State and detail of a run in the progress table."""
    if run.state == "failed":
        return "failed", f"{last_line(run.job.log)} ({run.job.log})"
    if run.state == "running":
        return run.stage, last_metrics(run.job.folder) if run.stage == "fit" else ""
    return run.state, ""


def _conclude(ended: list[tuple[Job, str]], jobs: Sequence[Job], stopped: bool) -> None:
    by_state: dict[str, list[Job]] = {}
    for job, state in ended:
        by_state.setdefault(state, []).append(job)
    if len(ended) < len(jobs):
        by_state["waiting"] = [job for job in jobs if all(job is not other for other, _ in ended)]
    print(f"{len(jobs)} points: " + ", ".join(f"{len(found)} {state}" for state, found in by_state.items()))
    if stopped:
        print("stopped; the same command goes on")
        raise SystemExit(130)
    if failed := by_state.get("failed"):
        raise CorpusError(
            f"{len(failed)} of {len(jobs)} points failed; the first is {failed[0].label!r}, see {failed[0].log}; "
            "the same command runs what is missing"
        )
    if elsewhere := by_state.get("elsewhere"):
        raise CorpusError(f"{elsewhere[0].folder}: another launch is at work on this run; wait until it has ended")
