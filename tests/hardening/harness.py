"""What the scripts of `make harden` share: options, tables, a small config, processes, and comparisons of folders."""

import argparse
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))  # first, since tests/ has folders of the same names

import torch

from precis.command_line.run_command import _quiet, _send_again
from precis.config.load_classes import load_classes
from precis.runs import run_folder

HEAD = ("what", "tried", "as if nothing had been", "lost")
SIZES = {"train": 12, "val": 3, "test": 3}  # documents of a small corpus
# six steps, three to an epoch, a validation after each second
SHORT = {"max_epochs": -1, "max_steps": 6, "val_check_interval": 2, "check_val_every_n_epoch": None}
SHORT |= {"num_sanity_val_steps": 0, "log_every_n_steps": 1}
# files of a run folder that two runs need not share, and a checkpoint that only an interrupted run may have
IGNORED = {".fit.lock", ".truncation.lock", "environment.json", "checkpoints/previous.ckpt"}


def run(description: str, work: Callable[[argparse.Namespace, Path], int], **options: tuple[Any, str]) -> None:
    """Do the work of a script, whose options have a default and a help, in a folder; exit with 1 if it has problems."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    for name, (default, text) in {**options, "seed": (1, "seed of all that is random")}.items():
        many = {"nargs": "+", "choices": default or None} if isinstance(default, list) else {"type": type(default)}
        parser.add_argument(f"--{name}", default=default, help=text, **many)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    run_folder._git = lambda *arguments: None  # which asks other processes, and changes no file
    _quiet()
    load_classes()
    with tempfile.TemporaryDirectory(prefix="precis-harden-") as place:
        os.environ |= {"PRECIS_CACHE": f"{place}/cache", "WANDB_MODE": "offline", "OMP_NUM_THREADS": "1"}
        os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])  # of the processes that a sweep starts
        sys.exit(bool(work(chosen, Path(place))))


def print_row(*cells: object) -> None:
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def print_head(*cells: str) -> None:
    print_row(*cells)
    print("|---" * len(cells) + "|", flush=True)


def report(name: str, problems: Iterable[str]) -> int:
    """Print a line of the table, and the problems to standard error; return the number of problems."""
    tried = lost = 0
    for problem in problems:
        tried += 1
        lost += bool(problem)
        if problem:
            print(f"{name}: {problem}", file=sys.stderr, flush=True)
    print_row(name, tried, tried - lost, lost)
    return lost


def in_a_child(work: Callable[[], None], output: Path, signals: Sequence[int] = (), after: float = 0.0) -> int:
    """Run a function in a forked process that gets signals, one after another; return its exit status, or -signal."""
    output.write_bytes(b"")  # a process can be killed before it opens the file
    process = os.fork()
    if process == 0:
        _run(work, output)
    timers = [Timer(after + 0.05 * index, os.kill, (process, number)) for index, number in enumerate(signals)]
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


def parsed(*arguments: object) -> Callable[[], None]:
    """Parse a command of `precis`; return what carries it out as often as wanted, each time in a process of its own."""
    from precis.training.training import PrecisCLI, command_line

    waiting: list[PrecisCLI] = []

    class Waiting(PrecisCLI):
        def before_instantiate_classes(self) -> None:
            waiting.append(self)

        def instantiate_classes(self) -> None: ...

        def _run_subcommand(self, subcommand: str) -> None: ...

    sys.argv = ["precis", *map(str, arguments)]
    command_line(Waiting)
    (cli,) = waiting

    def carry_out() -> None:  # what the constructor of LightningCLI does after parsing
        cli.__class__ = PrecisCLI
        cli._set_seed()
        cli.before_instantiate_classes()
        cli.instantiate_classes()
        cli._run_subcommand(cli.subcommand)

    return carry_out


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
    return {"keys": keys, "broken": list(cache._broken), "leftovers": [path.name for path in folder.glob(".*ing-*")]}


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
