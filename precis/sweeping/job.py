"""Jobs of a sweep: a run folder and its sequence of commands. Light to import, for login nodes and cluster tasks."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

from datamodules.atomic_write import atomic_write
from datamodules.file_locks import release_lock, take_lock
from precis.config.written_paths import check_links
from precis.files.data_files import read_json
from precis.trials.search_space import JOURNAL

COMMAND = (sys.executable, "-m", "precis.command_line.cli")


@dataclass(frozen=True)
class Job:
    """A run folder and the commands to run in it; `KIND` is the word for a job in messages."""

    KIND: ClassVar[str] = "point"
    label: str  # readable name
    folder: Path  # run folder
    config: dict[str, Any]  # full config
    # commands after `fit`; `{run}` is replaced by the run folder; without it, the folder is inserted
    after: tuple[str, ...] = ("test",)

    def stages(self) -> list[tuple[str, list[str]]]:
        """Return (name in status.json, arguments of `precis`) of each command: `fit`, which resumes, then `after`."""
        fit = ["fit", f"--config={self.folder}/point.yaml", f"--run_dir={self.folder}", "--resume=auto"]
        fit.append("--trainer.enable_progress_bar=false")  # since the output is a log file
        stages = [("fit", fit)]
        for command in self.after:
            words = [word.replace("{run}", str(self.folder)) for word in shlex.split(command)]
            if "{run}" not in command:
                options = [] if words[:1] == ["report"] else ["--run"]  # `precis report` takes the run by position
                words[1:1] = [*options, str(self.folder)]  # after the name of the command
            stages.append((command, words))
        return stages

    @property
    def log(self) -> Path:
        """Log file of the commands."""
        return self.folder / "log.txt"

    @property
    def progress_file(self) -> Path:
        """File that is written when the job makes progress."""
        return self.folder / "checkpoints" / "last.ckpt"

    def check_links(self) -> None:
        """Raise a `UserError` if a link in the run folder leads out of the sweep folder."""
        check_links(self.folder, self.folder.parent)

    def prepare(self) -> None:
        """Create the run folder with point.yaml."""
        self.folder.mkdir(parents=True, exist_ok=True)
        atomic_write(self.folder / "point.yaml", yaml.safe_dump(self.config, sort_keys=False, allow_unicode=True))


@dataclass(frozen=True)
class WorkerJob(Job):
    """A process that runs trials of a search, in a folder worker-N; if `trials` grows, a finished one runs again."""

    KIND: ClassVar[str] = "worker"
    trials: int = 0

    def stages(self) -> list[tuple[str, list[str]]]:
        """Return the command that runs trials until there are no more, with a name such as "20 trials"."""
        number = self.folder.name.rpartition("-")[2]
        return [(f"{self.trials} trials", ["sweep", "work", str(self.folder.parent), f"--worker={number}"])]

    @property
    def progress_file(self) -> Path:
        """The journal of the search."""
        return self.folder.parent / JOURNAL

    def prepare(self) -> None:
        """Create the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)


def read_status(folder: Path) -> dict[str, Any]:
    """Return status.json of a run folder: `done`, the successful commands, and `failed`, the failed one or None."""
    path = folder / "status.json"
    return read_json(path, done=list[str], failed=dict | None) if path.is_file() else {"done": [], "failed": None}


def is_finished(job: Job) -> bool:
    """Return whether all commands of a job were successful."""
    return {name for name, _ in job.stages()} <= set(read_status(job.folder)["done"])


def same_suite(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which commands import this installation of the suite, and write logs without delay."""
    root = str(Path(__file__).parents[2])  # folder that contains precis
    paths = os.pathsep.join([root, *filter(None, [environment.get("PYTHONPATH")])])
    # PYTHONSAFEPATH: no module of the working folder is imported. PRECIS_REQUEUE: the launcher requeues, not the run.
    variables = {"PYTHONPATH": paths, "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1", "PRECIS_REQUEUE": "off"}
    return {**environment, **variables, "COLUMNS": "120"}  # COLUMNS: the width of tables in a log


@contextmanager
def received_signals(*numbers: int) -> Iterator[list[int]]:
    """Catch signals within a context: each is added to the yielded list, and does not end this process."""
    received: list[int] = []
    # A process that `nohup` has started ignores SIGHUP, and has to go on ignoring it.
    caught = [n for n in numbers if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
    former_handlers = {number: signal.signal(number, lambda number, _: received.append(number)) for number in caught}
    try:
        yield received
    finally:
        for number, handler in former_handlers.items():
            signal.signal(number, handler)


def is_signal_status(status: int | None) -> bool:
    """Return whether a command ended by a signal that lets it save; None is the status of one that still runs."""
    numbers = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)
    # -number if the signal ended the process; 128 + number, as in shells, if the process handled it
    return status in {*(-number for number in numbers), *(128 + number for number in numbers)}


class Running:
    """Commands of a job that run in order, except those that were successful before; each `poll` may start the next.

    Its `state` is "running", "finished", "failed", "stopped", or "elsewhere" if another launcher runs the job; its
    `stage` is the name of the current command. With `own_session`, commands do not receive signals to the process
    group of this process, such as Ctrl-C.
    """

    def __init__(
        self, job: Job, environment: Mapping[str, str], command: Sequence[str] = COMMAND, own_session: bool = True
    ) -> None:
        """Lock the run folder, and start the first command in an environment; `command` is how precis is called."""
        self.job = job
        self.environment = environment
        self.command = command
        self.own_session = own_session
        self.state = "running"
        self.stage = ""
        self.stopping = False  # whether `stop` was called
        self.process: subprocess.Popen  # current command; not set if elsewhere or finished before
        job.check_links()  # refuses symbolic links that lead out of the sweep folder
        job.folder.mkdir(parents=True, exist_ok=True)
        self.lock = take_lock(job.folder / ".lock")  # file descriptor, which the commands inherit; None if locked
        if self.lock is None:
            self.state = "elsewhere"
            return
        self.done: list[str] = read_status(job.folder)["done"]  # names of the successful commands
        job.prepare()  # writes its config
        self._next()

    def _next(self) -> None:
        """Start the next command, or end if there is none or `stop` was called."""
        missing = [stage for stage in self.job.stages() if stage[0] not in self.done]  # still to run
        if not missing or self.stopping:
            self._end("stopped" if missing else "finished")
            return
        self.stage, arguments = missing[0]
        with self.job.log.open("a", encoding="utf-8") as log:
            log.write(f"$ {shlex.join(['precis', *arguments])}\n")
            log.flush()  # before the command writes to the file
            # In a session of its own, the command does not get Ctrl-C twice, from the terminal and from the launcher.
            # It also holds the lock, so that a second launch does not start it again if this process is killed.
            self.process = subprocess.Popen(
                [*self.command, *arguments], stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=self.environment, start_new_session=self.own_session, pass_fds=(self.lock,),
            )  # fmt: skip

    def poll(self) -> bool:
        """Start the next command if the current one has ended; return whether the run is still active."""
        status = self.process.poll() if self.state == "running" else None  # None while the command runs
        if status == 0:
            self.done.append(self.stage)
            self._record(None)  # in status.json: no failure
            self._next()
        elif status is not None and self.stopping:  # by `stop`; not recorded as a failure, so that it runs again
            self._end("stopped")
        elif status is not None:
            self._record({"command": self.stage, "status": status})
            self._end("failed")
        return self.state == "running"

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal, at which the command saves and stops; `poll` returns False once it has."""
        self.stopping = True
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the command and all its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL) if self.own_session else self.process.kill()

    def _record(self, failed: dict[str, Any] | None) -> None:
        atomic_write(self.job.folder / "status.json", json.dumps({"done": self.done, "failed": failed}) + "\n")

    def _end(self, state: str) -> None:
        self.state = state
        release_lock(self.lock)
