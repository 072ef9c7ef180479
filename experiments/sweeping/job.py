"""A run that is to be there, and its commands one after the other. Light to import: it runs on login nodes, and beside
every task of a cluster's job."""

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from datamodules.atomic_write import atomic_write

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
        fit = ["fit", f"--config={self.folder}/point.yaml", f"--run_dir={self.folder}", "--resume=auto"]
        stages = [("fit", [*fit, "--trainer.enable_progress_bar=false"])]
        for command in self.after:
            words = [word.replace("{run}", str(self.folder)) for word in shlex.split(command)]
            stages.append((command, words if "{run}" in command else [words[0], "--run", str(self.folder), *words[1:]]))
        return stages

    @property
    def log(self) -> Path:
        """Where its commands write."""
        return self.folder / "log.txt"

    def prepare(self) -> None:
        """Makes the run folder, with point.yaml in it.

        Raises:
            OSError: if that is not permitted.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        atomic_write(self.folder / "point.yaml", yaml.safe_dump(self.config, sort_keys=False, allow_unicode=True))


# What is known of a run ------------------------------------------------------------------------------------------


def read_status(folder: Path) -> dict[str, Any]:
    """status.json of a run folder: `done`, the commands that ended well, and `failed`, the one that did not or None."""
    path = folder / "status.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"done": [], "failed": None}


def is_finished(job: Job) -> bool:
    """Whether each of its commands has ended well."""
    return {name for name, _ in job.stages()} <= set(read_status(job.folder)["done"])


def take_lock(path: Path) -> int | None:
    """A file that one process at a time can hold, as a descriptor; None if another one holds it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def is_locked(path: Path) -> bool:
    """Whether a process of this machine holds it."""
    if not path.is_file():
        return False
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def same_suite(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which a command is of this very suite, and writes its log at once."""
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", "COLUMNS": "120"}


# One run ---------------------------------------------------------------------------------------------------------


class Running:
    """A run's commands, one after the other, from the first that has not ended well yet.

    Args:
        job: what to run.
        environment: of its commands.
        command: what `precis` is.
        own_session: whether signals to this process's group are kept from its commands.

    Attributes:
        state: "running", "finished", "failed", "stopped", or "elsewhere" where another launch is at work on it.
        stage: the command that runs.
    """

    def __init__(
        self, job: Job, environment: Mapping[str, str], command: Sequence[str] = COMMAND, own_session: bool = True
    ) -> None:
        self.job, self.environment, self.command, self.own_session = job, environment, command, own_session
        self.state, self.stage, self.stopping = "running", "", False
        self.process: subprocess.Popen | None = None
        job.folder.mkdir(parents=True, exist_ok=True)
        # The lock goes on to the run's own process: where a launcher was killed and its runs live on, a second launch
        # does not start them beside themselves.
        self.lock = take_lock(job.folder / ".lock")
        if self.lock is None:
            self.state = "elsewhere"
            return
        self.done: list[str] = read_status(job.folder)["done"]
        job.prepare()
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
        with self.job.log.open("a", encoding="utf-8") as log:
            log.write(f"$ {shlex.join(['precis', *arguments])}\n")
            log.flush()
            # In a session of its own: the terminal's Ctrl-C reaches the launcher alone, which tells its runs once.
            self.process = subprocess.Popen(
                [*self.command, *arguments], stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=self.environment, start_new_session=self.own_session, pass_fds=(self.lock,),
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
            self._fail(status)
        return self.state == "running"

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Asks the command to save and end."""
        self.stopping = True
        self.process.send_signal(number)

    def kill(self) -> None:
        """Ends the command and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL) if self.own_session else self.process.kill()

    def _fail(self, status: int) -> None:
        self._record({"command": self.stage, "status": status})
        self._end("failed")

    def _record(self, failed: dict[str, Any] | None) -> None:
        atomic_write(self.job.folder / "status.json", json.dumps({"done": self.done, "failed": failed}) + "\n")

    def _end(self, state: str) -> None:
        self.state = state
        os.close(self.lock)
