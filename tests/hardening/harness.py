"""What the scripts of `make harden` share: one folder and quiet commands, and a line of the table for each attack."""

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))  # first, since tests/ has folders of the same names

import torch

HEAD = "| what | tried | as if nothing had been | lost |\n|---|---|---|---|"


@contextmanager
def prepared_folder() -> Iterator[Path]:
    """Yield a folder to work in, and import all that forked processes need."""
    from precis.command_line.run_command import _quiet
    from precis.config.load_classes import load_classes
    from precis.runs import run_folder

    torch.set_num_threads(1)
    run_folder._git = lambda *arguments: None  # which asks other processes, and changes no file
    _quiet()
    load_classes()
    with tempfile.TemporaryDirectory(prefix="precis-harden-") as place:
        root = str(Path(__file__).parents[2])
        os.environ |= {"PRECIS_CACHE": f"{place}/cache", "WANDB_MODE": "offline", "OMP_NUM_THREADS": "1"}
        os.environ["PYTHONPATH"] = root  # of the processes that a sweep starts
        yield Path(place)


def report(name: str, problems: Iterable[str]) -> int:
    """Print a line of the table, and the problems to standard error; return the number of problems."""
    tried = lost = 0
    for problem in problems:
        tried += 1
        lost += bool(problem)
        if problem:
            print(f"{name}: {problem}", file=sys.stderr, flush=True)
    print(f"| {name} | {tried} | {tried - lost} | {lost} |", flush=True)
    return lost
