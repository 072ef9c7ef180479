"""Atomic building of caches, with removal of leftovers of killed builders."""

import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from datamodules.atomic_write import naming_full_disk
from datamodules.file_locks import lock_file, open_lock, release_lock

BUILDING = ".building-"  # prefix of the names of incomplete folders
LOCK = ".builders.lock"


@contextmanager
def builders_lock(folder: Path, prefix: str = BUILDING) -> Iterator[None]:
    """Hold a lock that all builders in a folder share, which is created if needed.

    A builder without concurrent ones first removes leftovers, whose names begin with `prefix`. A lock is released when
    its owner ends for any reason, so that incomplete files are leftovers if no lock is held.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    descriptor = open_lock(path)
    try:
        with suppress(PermissionError):  # all users who may write to a shared cache may lock it
            os.fchmod(descriptor, folder.stat().st_mode & 0o666)
        if lock_file(descriptor, path):  # there is no other builder
            _remove_leftovers(folder, prefix)
        lock_file(descriptor, path, shared=True, wait=math.inf)
        yield
    finally:
        release_lock(descriptor)


def _remove_leftovers(folder: Path, prefix: str) -> None:
    for path in folder.glob(f"{prefix}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def building_folder(parent: Path) -> Iterator[Path]:
    """Yield a temporary folder for building, which is removed at the end; the caller moves complete files out of it.

    Raises:
        UserError: if the disk is full.
    """
    with naming_full_disk(parent), builders_lock(parent):
        building = parent / f"{BUILDING}{uuid4().hex}"  # not by tempfile: others may read a shared cache
        building.mkdir()
        try:
            yield building
        finally:
            shutil.rmtree(building, ignore_errors=True)


@contextmanager
def appearing_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to its final name on success and removed on failure.

    Raises:
        UserError: if the disk is full.
    """
    with building_folder(folder.parent) as building:
        yield building
        try:
            building.rename(folder)
        except OSError:  # another process was first, with the same content
            if not folder.is_dir():
                raise
