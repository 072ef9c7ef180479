"""Atomic writing of files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[str]]:
    """Open a text file that replaces `path` when the block ends, and is removed when the block raises.

    One process at a time writes a path: the temporary name does not depend on the process, so that the next writer
    overwrites what a killed one left.

    Args:
        path: the file to write, in a folder that exists; UTF-8, line ends as written.

    Raises:
        OSError: if it cannot be written.
    """
    partial = path.with_name(f".{path.name}.part")
    try:
        with partial.open("w", newline="", encoding="utf-8") as file:
            yield file
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def atomic_write(path: Path, text: str) -> None:
    """Write a text file as a whole; see `atomic_file`."""
    with atomic_file(path) as file:
        file.write(text)
