"""Process pool with clean shutdown, and a progress bar, of lines where there is no terminal."""

import gc
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LINE_INTERVAL = 60.0  # seconds between lines where there is no terminal


@contextmanager
def mapper(num_proc: int, chunksize: int = 32) -> Iterator[Callable[..., Iterable[Any]]]:
    """Yield a function like `map`; if `num_proc` exceeds 1, it sends the items in chunks to a pool of processes."""
    if num_proc <= 1:
        yield map
        return
    pool = ProcessPoolExecutor(num_proc, initializer=_start_worker)  # workers ignore Ctrl-C
    try:
        yield partial(pool.map, chunksize=chunksize)
    finally:
        pool.shutdown(cancel_futures=True)  # on errors and Ctrl-C, without waiting for chunks that have not begun


def _start_worker() -> None:
    """Make a worker process ignore Ctrl-C, at which the parent stops the pool, and not collect the parent's objects."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A forked worker inherits the parent's garbage. If it collected this, destructors, such as those of process groups
    # of `torch.distributed`, would wait for threads that only the parent has.
    gc.freeze()


class _ProgressLines(Progress):
    """Progress without a terminal: a line on stderr once a minute, with an estimate of the time left."""

    def __init__(self) -> None:
        # nothing is drawn: `advance` prints the lines; the speed is that of the last 1,000 items within the last hour
        super().__init__(disable=True, auto_refresh=False, speed_estimate_period=3600)
        self.last_printed = monotonic()  # time of the last line, in seconds

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        if self.last_printed + LINE_INTERVAL <= monotonic():
            self.last_printed = monotonic()
            task = self._tasks[task_id]
            total = ""
            if task.total:  # None if the number of items is unknown
                total = f" of {task.total:,.0f}, {TimeRemainingColumn().render(task)} left"
            print(f"{task.description}: {task.completed:,.0f}{total}", file=sys.stderr, flush=True)


def progress_bar() -> Progress:
    """Return a progress bar on stderr that disappears when done, or prints lines if stderr is not a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return _ProgressLines()
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), *times)
    # lines of standard output are printed above the bar on a terminal; into a file or pipe they go unchanged
    return Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty())
