"""Locks of files, which the system releases when their owner ends for any reason."""

import errno
import fcntl
import os
import signal
import time
import warnings
from pathlib import Path
from typing import IO

_open_locks: set[int] = set()  # descriptors of open lock files; forked workers close their copies, see below
_without_locks: set[int] = set()  # file systems for which a warning was issued


def _in_forked_worker() -> None:
    """Close the lock files of the parent process in a forked worker, and leave Ctrl-C to the parent."""
    if _open_locks:  # otherwise, as in a program that only imports this package, its signal handler is kept
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    for descriptor in _open_locks:
        os.close(descriptor)
    _open_locks.clear()


os.register_at_fork(after_in_child=_in_forked_worker)


def lock_file(file: int | IO, path: Path, shared: bool = False, wait: float = 0.0) -> bool | None:
    """Lock an open file, given as an object or a descriptor, until it is closed.

    Args:
        path: path of the file, for the warning.
        shared: whether several processes may hold the lock at the same time; otherwise it is exclusive.
        wait: seconds to wait for another process that holds the lock.

    Returns:
        True if the file is locked, and False if another process still holds the lock. None if the file system has no
        locks, such as NFS without a lock daemon; a warning says so once for each file system.
    """
    deadline = time.monotonic() + wait  # the first attempt is always made
    while True:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):  # the codes of a lock that is held
                _warn(file, path, error)
                return None
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.1)  # then tries again, as `flock` has no time limit


def _warn(file: int | IO, path: Path, error: OSError) -> None:
    """Warn that the file system of a file has no locks, once for each file system."""
    device = os.fstat(file if isinstance(file, int) else file.fileno()).st_dev  # number of the file system
    if device not in _without_locks:
        _without_locks.add(device)
        problem = f"{path}: cannot be locked ({error.strerror}); continuing without locks on this file system"
        warnings.warn(f"{problem}: use each run, sweep and output from one process at a time", stacklevel=4)


def open_lock(path: Path) -> int:
    """Open a lock file, created if needed, and return its descriptor, which forked workers close."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    _open_locks.add(descriptor)
    return descriptor


def take_lock(path: Path, wait: float = 0.0) -> int | None:
    """Open and lock a lock file; return its descriptor, for `release_lock`, or None if held for `wait` seconds."""
    descriptor = open_lock(path)
    if lock_file(descriptor, path, wait=wait) is False:  # None, for a file system without locks, counts as locked
        release_lock(descriptor)
        return None
    return descriptor


def release_lock(descriptor: int) -> None:
    """Close a lock file, which releases its lock."""
    _open_locks.discard(descriptor)
    os.close(descriptor)


def is_locked(path: Path) -> bool | None:
    """Return whether a process holds the exclusive lock of a file; None if the file system has no locks."""
    if not path.is_file():
        return False
    with path.open() as file:  # closing it releases the lock
        locked_here = lock_file(file, path, shared=True)  # shared, so that two processes can ask at the same time
    return None if locked_here is None else not locked_here
