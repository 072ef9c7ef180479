"""Atomic writing of files and folders, removal of leftovers of killed writers, and one message for full disks."""

import errno
import fcntl
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO
from uuid import uuid4

from datamodules.documents import UserError
from datamodules.file_locks import is_locked, lock_file, open_lock, release_lock

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # full disk, exceeded quota, or file size limit


@contextmanager
def naming_full_disk(path: Path) -> Iterator[None]:
    """Replace an error of a full disk, quota or file size limit (`FULL`) in the block by a `UserError` with `path`."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        reason = os.strerror(error.errno)
        raise UserError(f"{path}: cannot be written ({reason}); free some space, or choose another folder") from None


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[str]]:
    """Open a temporary text file (UTF-8) that replaces `path` when the block ends, and is removed if the block raises.

    The temporary name does not depend on the process, so that the next writer overwrites the leftovers of a killed one.
    Line ends are not converted.

    Raises:
        UserError: if the disk is full, another process is writing the file, or `path` is a folder or device.
        OSError: if it cannot be written for another reason.
    """
    partial = path.with_name(f".{path.name}.part")
    if path.exists() and not path.is_file():  # renaming would replace a device, such as /dev/null
        raise UserError(f"{path}: a folder or device, not a file; choose another name")
    if is_locked(partial):
        raise UserError(f"{path}: another process is writing it; wait until it ends, or choose another file")
    partial.unlink(missing_ok=True)  # so that nothing is written through a link that another user placed there
    try:
        with naming_full_disk(path), partial.open("x", newline="", encoding="utf-8") as file:
            with suppress(OSError):  # on a file system without locks, of which the locks of runs and sweeps warn
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield file
        partial.replace(path)
    except BaseException:  # also Ctrl-C
        partial.unlink(missing_ok=True)
        raise


def atomic_write(path: Path, text: str) -> None:
    """Write a text file as a whole; see `atomic_file`."""
    with atomic_file(path) as file:
        file.write(text)


BUILDING = ".building-"  # prefix of the names of incomplete folders
LOCK = ".builders.lock"


@contextmanager
def builders_lock(folder: Path, prefix: str = BUILDING) -> Iterator[None]:
    """Hold a lock that all processes which build something in a folder share; the folder is created if needed.

    A process that is alone first removes the leftovers of killed ones, whose names begin with `prefix`. The system
    releases a lock when its process ends for any reason, so that incomplete files are leftovers if no lock is held.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    descriptor = open_lock(path)
    try:
        # all users who may write to a shared folder may lock it
        with suppress(PermissionError):  # the file of another user, who has already set its permissions
            os.fchmod(descriptor, folder.stat().st_mode & 0o666)  # as the folder, but not executable
        if lock_file(descriptor, path):  # exclusive, which succeeds if no other process builds here
            for leftover in folder.glob(f"{prefix}*"):
                if leftover.is_dir():
                    shutil.rmtree(leftover, ignore_errors=True)
                else:
                    leftover.unlink(missing_ok=True)
        lock_file(descriptor, path, shared=True, wait=math.inf)  # shared; waits while another removes leftovers
        yield
    finally:
        release_lock(descriptor)


@contextmanager
def building_folder(parent: Path) -> Iterator[Path]:
    """Yield a temporary folder in `parent`, which is removed at the end; the caller moves complete files out of it.

    Raises:
        UserError: if the disk is full.
    """
    with naming_full_disk(parent), builders_lock(parent):
        building = parent / f"{BUILDING}{uuid4().hex}"  # not by `tempfile`, whose folders only their owner can read
        building.mkdir()
        try:
            yield building
        finally:
            shutil.rmtree(building, ignore_errors=True)


@contextmanager
def appearing_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `folder` on success and removed on failure.

    Raises:
        UserError: if the disk is full.
    """
    with building_folder(folder.parent) as building:
        yield building
        try:
            building.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process has built it first, with the same content
                raise
