"""Locks of files, which the system releases when their owner ends for any reason."""

import errno
import fcntl
import os
import signal
import time
import warnings
from pathlib import Path
from typing import IO

_owned: set[int] = set()  # descriptors of locks, which a forked worker must not keep when its parent dies
_without_locks: set[int] = set()  # file systems for which a warning was issued


def _in_forked_worker() -> None:
    """Leave locks and the handling of Ctrl-C to the parent process."""
    if _owned:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    for descriptor in _owned:
        os.close(descriptor)
    _owned.clear()


os.register_at_fork(after_in_child=_in_forked_worker)


def lock_file(file: int | IO, path: Path, shared: bool = False, wait: float = 0.0) -> bool | None:
    """Lock an open file until it is closed.

    Args:
        path: its path, for the warning.
        wait: seconds to wait for another process that holds the lock.

    Returns:
        True if it is locked, and False if another process still holds the lock. None if the file system has no locks,
        such as NFS without a lock daemon; a warning says so once for each file system.
    """
    until = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                _warn(file, path, error)
                return None
        if time.monotonic() >= until:
            return False
        time.sleep(0.1)


def _warn(file: int | IO, path: Path, error: OSError) -> None:
    device = os.fstat(file if isinstance(file, int) else file.fileno()).st_dev
    if device not in _without_locks:
        _without_locks.add(device)
        problem = f"{path}: cannot be locked ({error.strerror}); continuing without locks on this file system"
        warnings.warn(f"{problem}: use each run, sweep and output from one process at a time", stacklevel=4)


def open_lock(path: Path) -> int:
    """Open a lock file, created if needed, and return its descriptor, which forked workers close."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    _owned.add(descriptor)
    return descriptor


def take_lock(path: Path, wait: float = 0.0) -> int | None:
    """Open a lock file, lock it if its file system has locks, and return its descriptor, for `release_lock`.

    None if another process still holds the lock after `wait` seconds.
    """
    descriptor = open_lock(path)
    if lock_file(descriptor, path, wait=wait) is False:
        release_lock(descriptor)
        return None
    return descriptor


def release_lock(descriptor: int) -> None:
    """Close a lock file."""
    _owned.discard(descriptor)
    os.close(descriptor)


def is_locked(path: Path) -> bool | None:
    """Return whether a process holds a lock on a file; None if the file system has no locks."""
    if not path.is_file():
        return False
    with path.open() as file:
        free = lock_file(file, path, shared=True)
    return None if free is None else not free
