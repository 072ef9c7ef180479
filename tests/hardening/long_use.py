"""Memory and open files over long use: training steps, summaries from Python, requests to the playground.

    make harden        (or: python tests/hardening/long_use.py --steps 2000 --summaries 1000 --requests 200)

Memory (resident) and open files are measured at regular intervals. Growth counts from the end of the first quarter,
after which buffers and caches of fixed size are filled; both have to stay flat.
"""

import ctypes
import gc
import os
import random
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import harness  # first, since it finds the others
from cases import BY_NAME
from conftest import made_up, write_corpus
from pytorch_lightning import Callback, seed_everything
from quiet_trainer import quiet_trainer

CASE_NAMES = ["pointer-coverage", "bertsum", "graphsum", "rstformer"]
MAX_GROWTH = 8.0  # MiB after the first quarter; what allocators and interpreters need to settle
POINTS = 20  # measurements


def usage() -> tuple[float, int]:
    """Return memory in MiB and the number of open files, after memory that is free is given back to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir("/proc/self/fd"))


class Measured(Callback):
    def __init__(self, every: int) -> None:
        self.every, self.usages = every, []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step % self.every == 0:
            self.usages.append(usage())


def repeated(work: Callable[[int], object], times: int) -> list[tuple[float, int]]:
    usages = []
    for number in range(1, times + 1):
        work(number)
        if number % max(1, times // POINTS) == 0:
            usages.append(usage())
    return usages


def report(what: str, count: int, usages: list[tuple[float, int]]) -> bool:
    """Print a line of the table, and return whether memory or open files grow after the first quarter."""
    (first, files), (last, files_at_end) = usages[len(usages) // 4], usages[-1]
    growth = (f"{last - first:+.1f}", f"{files_at_end - files:+d}")
    harness.print_row(what, f"{count:,}", f"{first:.0f}", f"{last:.0f}", *growth)
    return last - first > MAX_GROWTH or files_at_end > files


def train(name: str, files: dict[str, str], steps: int) -> list[tuple[float, int]]:
    seed_everything(1, verbose=False)
    measured = Measured(max(1, steps // POINTS))
    limits = {"max_steps": steps, "val_check_interval": 100, "check_val_every_n_epoch": None}
    quiet_trainer(measured, **limits).fit(BY_NAME[name].build_model(), BY_NAME[name].build_data(files))
    return measured.usages


def use_long(options: Namespace, folder: Path) -> int:
    harness.print_head("what", "number", "MiB after a quarter", "MiB at the end", "growth, MiB", "open files")
    files, growing = write_corpus(folder), 0
    for name in options.models if options.steps else ():
        growing += report(f"training steps, {name}", options.steps, train(name, files, options.steps))

    from run_folders import write_run

    import precis
    from precis.playground.playground import Playground

    rng = random.Random(1)
    texts = [made_up(number, rng)["document"] for number in range(50)]
    paths = [str(write_run(folder / name, name, files)) for name in options.models]
    for name, path in zip(options.models, paths) if options.summaries else ():
        run = precis.load(path)
        work = lambda number, run=run: run.summarize(texts[number % len(texts)])  # noqa: E731
        growing += report(f"summaries, {name}", options.summaries, repeated(work, options.summaries))
    if options.requests:
        playground = Playground(paths)
        work = lambda number: playground.summarize(texts[number % len(texts)], "", list(playground.runs), 2)  # noqa: E731
        growing += report(f"playground, {len(paths)} models", options.requests, repeated(work, options.requests))
    return growing


if __name__ == "__main__":
    harness.run(
        __doc__, use_long,
        steps=(2000, "training steps of each model; 0 for none"),
        summaries=(1000, "calls of run.summarize; 0 for none"),
        requests=(200, "requests to the playground; 0 for none"),
        models=(CASE_NAMES, "names of models to train and load; see tests/cases.py"),
    )  # fmt: skip
