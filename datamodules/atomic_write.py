"""Atomic writing of files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[str]]:
    """Open a text file that replaces `path` when the block ends, and is removed when the block raises.

    Only one process at a time may write a path: the temporary name does not depend on the process, so that the next
    writer overwrites the leftovers of a killed one.

    Args:
        path: file to write, in an existing folder; UTF-8, without conversion of line ends.

    Raises:
        OSError: if it cannot be written.
    """
    partial = path.with_name(f".{path.name}.part")
    partial.unlink(missing_ok=True)  # not through a link of that name, which a folder of somebody else may have
    try:
        with partial.open("x", newline="", encoding="utf-8") as file:
            yield file
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def atomic_write(path: Path, text: str) -> None:
    """Write a text file as a whole; see `atomic_file`."""
    with atomic_file(path) as file:
        file.write(text)
