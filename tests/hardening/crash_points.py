"""Kills a small training run, and the building of caches, at every file operation, and looks at what comes after.

    make harden        (or: python tests/hardening/crash_points.py --every 10)

A run that was killed is continued by `precis fit --run` (by `fit --config ... --resume auto` where it was killed before
its config.yaml was there). Afterwards the run folder has to be that of a run which nobody killed: last and best
checkpoint with the same weights, optimizer and step bit for bit, the same metrics.csv, config, text, and no other file.
A cache that was killed while it was built is built by the next process; afterwards it has to hold the same, and nothing
that the killed one has left.

The processes that die are forked from one that has imported everything and parsed the command line already.
"""

import json
import shutil
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import harness  # first, since it finds the others
import yaml
from conftest import write_corpus
from killing import FileOperations
from processes import Parsed, changed_names, contents, differences, in_a_child, parses_in


class Crashes(ABC):
    """Work that is killed at its file operations in a folder that is watched."""

    name: str

    def __init__(self, folder: Path, watched: Path) -> None:
        self.folder, self.watched, self.output = folder, watched, folder / "output.txt"

    @abstractmethod
    def start(self) -> None:
        """Do the work, in a forked process."""

    @abstractmethod
    def finish(self) -> str:
        """Continue the work that was killed, and return what is wrong then, or nothing."""

    def in_a_child(self, kill_at: int = 0) -> list[str]:
        """Do the work in a process that is killed at an operation, or not at all; return its operations."""
        record = self.folder / "operations.json"
        shutil.rmtree(self.watched, ignore_errors=True)

        def watched() -> None:
            operations = FileOperations(self.watched, kill_at)
            operations.watch()
            self.start()
            record.write_text(json.dumps(operations.seen))

        status = in_a_child(watched, self.output)
        if status != (-signal.SIGKILL if kill_at else 0):
            raise RuntimeError(f"{self.name}, killed at {kill_at}: ended with {status}:\n{self.output.read_text()}")
        return [] if kill_at else json.loads(record.read_text())

    def crash(self, number: int) -> str:
        """Kill the work at an operation, let another process continue, and return what is wrong then, or nothing."""
        self.in_a_child(number)
        return self.finish()


class RunCrashes(Crashes):
    """A small `precis fit`, killed at its file operations in the run folder."""

    name = "`precis fit`, run folder"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, folder / "run")
        self.run, self.whole, config = self.watched, folder / "whole", folder / "config.yaml"
        files = write_corpus(folder / "corpus", harness.SIZES)
        config.write_text(yaml.safe_dump(harness.tiny_config(files, **harness.SHORT) | {"save_every": 3}))
        options = (f"--run_dir={self.run}", "--resume=auto")
        self.command = Parsed("fit", f"--config={config}", *options)
        self.in_a_child()  # which fills the cache
        self.operations = self.in_a_child()
        shutil.copytree(self.run, self.whole)
        self.resume = Parsed("fit", f"--config={self.run}/config.yaml", *options)

    def start(self) -> None:
        self.command.carry_out()

    def finish(self) -> str:
        config = self.run / "config.yaml"
        if config.exists() and config.read_bytes() != (self.whole / "config.yaml").read_bytes():
            return "a config.yaml that is not whole"
        if status := in_a_child(self.resume.carry_out if config.exists() else self.start, self.output):
            return f"cannot be continued ({status}): {self.output.read_text()[-1000:]}"
        return differences(self.run, self.whole)


class CacheCrashes(Crashes):
    """Documents, text, features and parses of a small corpus, killed at the file operations in their cache."""

    name = "documents, text, features and parses, cache"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, folder / "cache")
        self.files = write_corpus(folder / "corpus", harness.SIZES)
        self.operations = self.in_a_child()
        self.whole = self._content()

    def start(self) -> None:
        """Build the missing parts of the cache."""
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
    """Kill at these operations, one after the other, and yield what is lost each time, or nothing."""
    for number in numbers:
        problem = crashes.crash(number)
        yield f"operation {number}, {crashes.operations[number - 1]}: {problem}" if problem else ""


def main() -> int:
    options = harness.read_options(__doc__, every=(1, "kill at each n-th operation only"))
    lost = 0
    with harness.prepared_folder() as place:
        print(harness.HEAD)
        for kind in (RunCrashes, CacheCrashes):
            folder = place / kind.__name__
            folder.mkdir()
            crashes = kind(folder)
            numbers = range(1, len(crashes.operations) + 1, options.every)
            lost += harness.report(kind.name, problems(crashes, numbers))
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
