"""Kills its own process at one file operation in a folder: the n-th, counted from when it is told to."""

import builtins
import io
import os
import signal
import sys
from pathlib import Path
from typing import Any

_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_DIR_FD = {"os.remove": 1, "os.rmdir": 1, "os.mkdir": 2}  # place of `dir_fd` in the arguments of an audit event
_EVENTS = {"open", "os.rename", "os.link", "os.symlink", "os.truncate", "os.chmod", *_DIR_FD}


class FileOperations:
    """Counts what this process changes in a folder, and kills it at one of these operations.

    Operations are those that Python audits (a file is opened for writing, renamed, linked, removed, a folder made or
    removed), each before it happens, and every single `write(2)` of a Python file, after the first half of its bytes.
    The operation with the number `kill_at`, counted from 1, is not survived.
    """

    def __init__(self, folder: Path, kill_at: int = 0) -> None:
        self.folder, self.kill_at = os.path.realpath(folder), kill_at
        self.seen: list[str] = []
        self._open = io.open

    def watch(self) -> None:
        """Starts to count; there is no way back but the end of the process."""
        sys.addaudithook(self._audit)
        io.open = builtins.open = self._open_for_writing

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _EVENTS or (event == "open" and not (arguments[2] or 0) & _CHANGES):
            return
        place = _DIR_FD.get(event)
        folder = arguments[place] if place is not None else -1
        paths = arguments[:2] if event in ("os.rename", "os.link") else arguments[:1]
        names = [self._inside(path, folder) for path in paths]
        if any(names):
            self._count(f"{event.removeprefix('os.')} {' -> '.join(filter(None, names))}")

    def _inside(self, path: Any, folder: int | None) -> str:
        """The path within the watched folder; empty for one outside."""
        if not isinstance(path, str | bytes | os.PathLike):
            return ""
        path = os.fsdecode(path)
        if folder not in (None, -1) and not os.path.isabs(path):
            path = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)
        path = os.path.abspath(path)
        return os.path.relpath(path, self.folder) if path.startswith(self.folder + os.sep) else ""

    def _count(self, operation: str) -> bool:
        """Notes an operation; whether it is the one to die in, if the process survives this call."""
        self.seen.append(operation)
        if len(self.seen) == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    def _open_for_writing(self, file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **options: Any) -> Any:
        """`open`, whose files count and may die in each `write(2)`."""
        name = self._inside(file, None)
        if not name or not set(mode) & set("wax+") or options.get("opener"):
            return self._open(file, mode, buffering, *rest, **options)
        raw = _KillingFile(file, mode.replace("b", "").replace("t", ""), operations=self, name=name)
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        if "b" in mode:
            return buffered
        return io.TextIOWrapper(buffered, *rest, **options)


class _KillingFile(io.FileIO):
    """A raw file of which a `write` may be the last thing that its process does, half done."""

    def __init__(self, file: Any, mode: str, operations: FileOperations, name: str) -> None:
        super().__init__(file, mode)
        self.operations, self.label = operations, f"write {name}"

    def write(self, content: Any) -> int:
        operations = self.operations
        if len(operations.seen) + 1 == operations.kill_at:
            view = memoryview(content).cast("B")
            super().write(view[: len(view) // 2])
        operations._count(self.label)
        return super().write(content)
