"""Atomic writing of files, and one message for full disks."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from datamodules.documents import UserError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # full disk, exceeded quota, or file size limit


@contextmanager
def naming_full_disk(path: Path) -> Iterator[None]:
    """Add the path to errors of a full disk, which do not have it.

    Raises:
        UserError: if the disk is full.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        reason = os.strerror(error.errno)
        raise UserError(f"{path}: cannot be written ({reason}); free some space, or choose another folder") from None


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[str]]:
    """Open a text file (UTF-8) that replaces `path` when the block ends, and is removed when the block raises.

    Only one process at a time may write a path: the temporary name does not depend on the process, so that the next
    writer overwrites the leftovers of a killed one. Line ends are not converted.

    Raises:
        UserError: if the disk is full.
        OSError: if it cannot be written for another reason.
    """
    partial = path.with_name(f".{path.name}.part")
    partial.unlink(missing_ok=True)  # not through a link of that name, which a folder of somebody else may have
    try:
        with naming_full_disk(path), partial.open("x", newline="", encoding="utf-8") as file:
            yield file
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def atomic_write(path: Path, text: str) -> None:
    """Write a text file as a whole; see `atomic_file`."""
    with atomic_file(path) as file:
        file.write(text)
