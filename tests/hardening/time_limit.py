"""A limit of time for a piece of work in the main thread."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


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
