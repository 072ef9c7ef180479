"""Process pool with clean shutdown, and a progress bar for terminals."""

import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextmanager
def mapper(num_proc: int, chunksize: int = 32) -> Iterator[Callable[..., Iterable[Any]]]:
    """Yield a function like `map`, which uses a process pool if `num_proc` exceeds 1 and keeps the order."""
    if num_proc <= 1:
        yield map
        return
    # Workers ignore Ctrl-C: the parent stops the pool and cleans up.
    pool = ProcessPoolExecutor(num_proc, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN))
    try:
        yield partial(pool.map, chunksize=chunksize)
    finally:
        pool.shutdown(cancel_futures=True)


def progress_bar() -> Progress:
    """Return a progress bar on stderr that disappears when done, and is disabled if stderr is not a terminal."""
    console = Console(stderr=True)
    # lines of standard output are printed above the bar on a terminal; into a file or pipe they go unchanged
    redirect = sys.stdout.isatty()
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), *times)
    disable = not console.is_terminal
    return Progress(*columns, console=console, transient=True, disable=disable, redirect_stdout=redirect)
