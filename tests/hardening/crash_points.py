"""Kills a small training run, and the building of caches, at every file operation, and looks at what comes after.

    make harden        (or: python tests/hardening/crash_points.py --every 10)

A run that was killed is continued by `precis fit --run` (by `fit --config ... --resume auto` where it was killed before
its config.yaml was there). Afterwards the run folder has to be that of a run which nobody killed: last and best
checkpoint with the same weights, optimizer and step bit for bit, the same metrics.csv, config, text, and no other file.
A cache that was killed while it was built is built by the next process; afterwards it has to hold the same, and nothing
that the killed one has left.

The processes that die are forked from one that has imported everything and parsed the command line already.
"""

import builtins
import io
import json
import os
import shutil
import signal
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import harness  # first, since it finds the others
from conftest import pointer_generator_config, write, write_corpus
from harness import changed_names, contents, differences, in_a_child, parsed, parses_in

_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_DIR_FD = {"os.remove": 1, "os.rmdir": 1, "os.mkdir": 2}  # place of `dir_fd` in the arguments of an audit event
_EVENTS = {"open", "os.rename", "os.link", "os.symlink", "os.truncate", "os.chmod", *_DIR_FD}


class FileOperations:
    """Counts the changes and (half) writes of this process in a folder, and kills it at the one numbered `kill_at`."""

    def __init__(self, folder: Path, kill_at: int = 0) -> None:
        self.folder, self.kill_at = os.path.realpath(folder), kill_at
        self.seen: list[str] = []
        self._open = io.open
        # there is no way back but the end of the process
        sys.addaudithook(self._audit)
        io.open = builtins.open = self._open_for_writing

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _EVENTS or (event == "open" and not (arguments[2] or 0) & _CHANGES):
            return
        folder = arguments[_DIR_FD[event]] if event in _DIR_FD else -1
        paths = arguments[:2] if event in ("os.rename", "os.link") else arguments[:1]
        if names := list(filter(None, (self._inside(path, folder) for path in paths))):
            self._count(f"{event.removeprefix('os.')} {' -> '.join(names)}")

    def _inside(self, path: Any, folder: int | None) -> str:
        """Return the path within the watched folder; empty for one outside."""
        if not isinstance(path, str | bytes | os.PathLike):
            return ""
        path = os.fsdecode(path)
        if folder not in (None, -1) and not os.path.isabs(path):
            path = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)
        path = os.path.abspath(path)
        return os.path.relpath(path, self.folder) if path.startswith(self.folder + os.sep) else ""

    def _count(self, operation: str) -> None:
        self.seen.append(operation)
        if len(self.seen) == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def _open_for_writing(self, file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **options: Any) -> Any:
        """`open`, whose files count and may die in each `write(2)`."""
        name = self._inside(file, None)
        if not name or not set(mode) & set("wax+") or options.get("opener"):
            return self._open(file, mode, buffering, *rest, **options)
        raw = _KillingFile(file, mode.replace("b", "").replace("t", ""), operations=self, name=name)
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *rest, **options)


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


class Crashes:
    """Work, by `start`, killed at its file operations in a folder; `finish` continues it, and returns what is wrong."""

    name: str

    def __init__(self, folder: Path, watched: Path) -> None:
        self.folder, self.watched, self.output = folder, watched, folder / "output.txt"

    def in_a_child(self, kill_at: int = 0) -> list[str]:
        """Do the work in a process that is killed at an operation, or not at all; return its operations."""
        record = self.folder / "operations.json"
        shutil.rmtree(self.watched, ignore_errors=True)

        def watched() -> None:
            operations = FileOperations(self.watched, kill_at)
            self.start()
            record.write_text(json.dumps(operations.seen))

        status = in_a_child(watched, self.output)
        if status != (-signal.SIGKILL if kill_at else 0):
            raise RuntimeError(f"{self.name}, killed at {kill_at}: ended with {status}:\n{self.output.read_text()}")
        return [] if kill_at else json.loads(record.read_text())


class RunCrashes(Crashes):
    name = "`precis fit`, run folder"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, folder / "run")
        self.run, self.whole = self.watched, folder / "whole"
        files = write_corpus(folder / "corpus", harness.SIZES)
        content = pointer_generator_config(files, 4, **harness.SHORT) | {"save_every": 3}
        config = write(folder / "config.yaml", content)
        options = (f"--run_dir={self.run}", "--resume=auto")
        self.start = parsed("fit", f"--config={config}", *options)
        self.in_a_child()  # which fills the cache
        self.operations = self.in_a_child()
        shutil.copytree(self.run, self.whole)
        self.resume = parsed("fit", f"--config={self.run}/config.yaml", *options)

    def finish(self) -> str:
        config = self.run / "config.yaml"
        if config.exists() and config.read_bytes() != (self.whole / "config.yaml").read_bytes():
            return "a config.yaml that is not whole"
        if status := in_a_child(self.resume if config.exists() else self.start, self.output):
            return f"cannot be continued ({status}): {self.output.read_text()[-1000:]}"
        return differences(self.run, self.whole)


class CacheCrashes(Crashes):
    name = "documents, text, features and parses, cache"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, folder / "cache")
        self.files = write_corpus(folder / "corpus", harness.SIZES)
        self.operations = self.in_a_child()
        self.whole = self._content()

    def start(self) -> None:
        from made_up_parses import made_up_document, made_up_parse

        from datamodules import PointerGeneratorData
        from datamodules.corpora import Files
        from datamodules.discourse.cache import ParseCache, ShardWriter
        from datamodules.discourse.parses import ParseRequest

        data = PointerGeneratorData(Files(**self.files), vocab_size=30, cache_dir=self.watched / "corpus")
        data.prepare_data()
        parses = ParseCache(self.watched / "parses")
        missing = parses.missing([str(number) for number in range(6)])
        with ShardWriter(parses, documents=2) as writer:
            for key in missing:
                writer.add(key, made_up_parse(ParseRequest.of(made_up_document(int(key)))))

    def finish(self) -> str:
        if status := in_a_child(self.start, self.output):
            return f"cannot be built ({status}): {self.output.read_text()[-1000:]}"
        return changed_names(self._content(), self.whole)

    def _content(self) -> dict[str, Any]:
        files = {name: content for name, content in contents(self.watched).items() if not name.endswith(".safetensors")}
        return files | parses_in(self.watched / "parses")


def problems(crashes: Crashes, numbers: Iterable[int]) -> Iterator[str]:
    """Kill at these operations, let another process continue each time, and yield what is lost then, or nothing."""
    for number in numbers:
        crashes.in_a_child(number)
        problem = crashes.finish()
        yield f"operation {number}, {crashes.operations[number - 1]}: {problem}" if problem else ""


def kill_everywhere(options: Namespace, place: Path) -> int:
    harness.print_head(*harness.HEAD)
    lost = 0
    for kind in (RunCrashes, CacheCrashes):
        folder = place / kind.__name__
        folder.mkdir()
        crashes = kind(folder)
        numbers = range(1, len(crashes.operations) + 1, options.every)
        lost += harness.report(kind.name, problems(crashes, numbers))
    return lost


if __name__ == "__main__":
    harness.run(__doc__, kill_everywhere, every=(1, "kill at each n-th operation only"))
