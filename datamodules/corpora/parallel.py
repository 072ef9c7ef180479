"""Work on many pieces: a process pool that ends cleanly, and a progress bar where somebody watches."""

import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def mapper(num_proc: int, chunksize: int = 32) -> Iterator[Callable[..., Iterable[Any]]]:
    """`map`, in a pool of processes if there is to be more than one; results come in order."""
    if num_proc <= 1:
        yield map
        return
    # The parent alone answers Ctrl-C: it stops the pool and cleans up.
    pool = ProcessPoolExecutor(num_proc, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN))
    try:
        yield partial(pool.map, chunksize=chunksize)
    finally:
        pool.shutdown(cancel_futures=True)


def progress_bar() -> Progress:
    """A bar on the error stream that goes when its work is done; silent where that stream is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
