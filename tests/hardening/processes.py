"""Forked processes, a limit of time, and the comparison of the run folders that processes leave."""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import torch

from precis.command_line.run_command import _send_again

# files of a run folder that two runs need not share, and a checkpoint that only an interrupted run may have
IGNORED = {".fit.lock", ".truncation.lock", "environment.json", "checkpoints/previous.ckpt"}


def in_a_child(
    work: Callable[[], None], output: Path, signals: Sequence[int] = (), after: float = 0.0, pause: float = 0.05
) -> int:
    """Run a function in a forked process, and return its exit status, or minus the number of the signal that killed it.

    While it runs, it gets the signals, the first after some seconds, the others with pauses between them.
    """
    output.write_bytes(b"")  # a process can be killed before it opens the file
    process = os.fork()
    if process == 0:
        _run(work, output)
    timers = [Timer(after + pause * index, os.kill, (process, number)) for index, number in enumerate(signals)]
    for timer in timers:
        timer.start()
    # the process is not reaped before the timers are cancelled, so that no signal reaches another one
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    for timer in timers:
        timer.cancel()
        timer.join()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _run(work: Callable[[], None], output: Path) -> None:
    status = 1
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts in the background
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.unraisablehook = _send_again
    torch.set_num_threads(1)  # threads of OpenMP that the parent has started are not there after a fork
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        work()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class Parsed:
    """A parsed command of `precis`, which is carried out as often as wanted, each time in a process of its own."""

    def __init__(self, *arguments: object) -> None:
        from precis.training.training import PrecisCLI, command_line

        class Waiting(PrecisCLI):
            def before_instantiate_classes(self) -> None:
                waiting.append(self)

            def instantiate_classes(self) -> None: ...

            def _run_subcommand(self, subcommand: str) -> None: ...

        waiting: list[PrecisCLI] = []
        sys.argv = ["precis", *map(str, arguments)]
        command_line(Waiting)
        self.cli, self.plain = waiting[0], PrecisCLI

    def carry_out(self) -> None:
        """Do what the constructor of LightningCLI does after parsing."""
        self.cli.__class__ = self.plain
        self.cli._set_seed()
        self.cli.before_instantiate_classes()
        self.cli.instantiate_classes()
        self.cli._run_subcommand(self.cli.subcommand)


def differences(run: Path, whole: Path) -> str:
    """Return the differences between a run folder and that of an uninterrupted run; empty if there are none."""
    ours, theirs = (_files(folder) for folder in (run, whole))
    found = [f"additional {name}" for name in sorted(ours - theirs)] + [f"no {name}" for name in sorted(theirs - ours)]
    for name in sorted(ours & theirs - IGNORED):
        if name.endswith(".ckpt"):
            pair = [torch.load(folder / name, weights_only=True) for folder in (run, whole)]
            keys = ("state_dict", "optimizer_states", "global_step", "epoch")
            found += [f"another {key} in {name}" for key in keys if not _equal(pair[0][key], pair[1][key])]
        elif (run / name).read_bytes() != (whole / name).read_bytes():
            found.append(f"another {name}")
    return "; ".join(found)


def _files(folder: Path) -> set[str]:
    """Return the paths of all files within a run folder but the records of W&B, of which each start has its own."""
    paths = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return {str(path) for path in paths if path.parts[0] != "wandb"}


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def contents(folder: Path) -> dict[str, Any]:
    """Return names and bytes of all files but locks."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".lock"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def parses_in(folder: Path) -> dict[str, Any]:
    """Return the keys of a cache of parses, what is broken in it, and leftovers; its shards have random names."""
    from datamodules.discourse.cache import ParseCache

    cache = ParseCache(folder)
    keys = list(cache)
    cache.missing(keys)  # verifies every document
    return {"keys": keys, "broken": cache.broken, "leftovers": [path.name for path in folder.glob(".*ing-*")]}


def changed_names(content: dict[str, Any], whole: dict[str, Any]) -> str:
    """Return the names of what is missing, additional or different; empty if nothing is."""
    return ", ".join(name for name in {**content, **whole} if content.get(name) != whole.get(name))


class TimeLimit(BaseException):
    """The work took longer."""


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise `TimeLimit` in the block after a number of seconds."""

    def end(*_: object) -> None:
        raise TimeLimit

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
