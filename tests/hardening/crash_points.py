"""Kills a small training run, and the building of caches, at every file operation, and looks at what comes after.

    make harden        (or: python tests/hardening/crash_points.py --every 10)

A run that was killed is continued by `precis fit --run` (by `fit --config ... --resume auto` where it was killed before
its config.yaml was there). Afterwards the run folder has to be that of a run which nobody killed: last and best
checkpoint with the same weights, optimizer and step bit for bit, the same metrics.csv, config, text, and no other file.
A cache that was killed while it was built is built by the next process; afterwards it has to hold the same, and nothing
that the killed one has left.

The processes that die are forked from one that has imported everything and parsed the command line already.
"""

import argparse
import json
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import harness  # first, since it finds the others
import yaml
from conftest import write_corpus
from killing import FileOperations
from processes import Parsed, differences, in_a_child

STEPS = 6  # of the run: three to an epoch, a validation after each second
SIZES = {"train": 12, "val": 3, "test": 3}


def write_config(path: Path, files: dict[str, str]) -> Path:
    """The config of a run of the smallest pointer-generator."""
    decoding = {"beam_size": 1, "min_length": 1, "max_length": 3}
    sizes = {"vocab_size": 30, "embedding_size": 2, "hidden_size": 2}
    data = {"corpus": {"class_path": "datamodules.corpora.Files", "init_args": files}, "max_source": 10}
    trainer = {"max_epochs": -1, "max_steps": STEPS, "val_check_interval": 2, "check_val_every_n_epoch": None}
    quiet = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False, "log_every_n_steps": 1}
    config = {
        "seed_everything": 3,
        "model": {"class_path": "lightning_modules.PointerGenerator", "init_args": sizes | {"decoding": decoding}},
        "data": {
            "class_path": "datamodules.PointerGeneratorData",
            "init_args": data | {"max_target": 5, "batch_size": 4},
        },
        "trainer": trainer | quiet | {"num_sanity_val_steps": 0},
        "save_every": 3,
        "wandb": "off",
        "previews": 0,
    }
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


# A run -----------------------------------------------------------------------------------------------------------


class RunCrashes:
    """A small `precis fit`, killed at its file operations in the run folder.

    Args:
        folder: to work in.
    """

    name = "`precis fit`, run folder"

    def __init__(self, folder: Path) -> None:
        self.folder, self.run, self.whole = folder, folder / "run", folder / "whole"
        self.output = folder / "output.txt"
        config = write_config(folder / "config.yaml", write_corpus(folder / "corpus", SIZES))
        self.start = Parsed("fit", f"--config={config}", f"--run_dir={self.run}", "--resume=auto")
        self.operations = self._whole_run()
        self.config = (self.whole / "config.yaml").read_bytes()
        shutil.copytree(self.whole, self.run)
        self.resume = Parsed("fit", f"--config={self.run}/config.yaml", f"--run_dir={self.run}", "--resume=auto")

    def _whole_run(self) -> list[str]:
        """Its operations; the first run fills the cache, the second one is counted."""
        record = self.folder / "operations.json"

        def counted() -> None:
            operations = FileOperations(self.run)
            operations.watch()
            self.start.carry_out()
            record.write_text(json.dumps(operations.seen))

        for work in (self.start.carry_out, counted):
            shutil.rmtree(self.run, ignore_errors=True)
            if status := in_a_child(work, self.output):
                raise RuntimeError(f"the run that nobody kills ended with {status}:\n{self.output.read_text()}")
        self.run.rename(self.whole)
        return json.loads(record.read_text())

    def crash(self, number: int) -> str:
        """Kill a run at an operation, continue it, and return the problem, if any."""
        shutil.rmtree(self.run, ignore_errors=True)

        def killed() -> None:
            FileOperations(self.run, number).watch()
            self.start.carry_out()

        status = in_a_child(killed, self.output)
        if status != -signal.SIGKILL:
            return f"was to be killed, ended with {status}: {self.output.read_text()[-1000:]}"
        config = self.run / "config.yaml"
        if config.exists() and config.read_bytes() != self.config:
            return "a config.yaml that is not whole"
        if status := in_a_child((self.resume if config.exists() else self.start).carry_out, self.output):
            return f"cannot be continued ({status}): {self.output.read_text()[-1000:]}"
        return differences(self.run, self.whole)


# Caches ----------------------------------------------------------------------------------------------------------


class CacheCrashes:
    """Documents, text, features and parses of a small corpus, killed at the file operations in their cache.

    Args:
        folder: to work in.
    """

    name = "documents, text, features and parses, cache"

    def __init__(self, folder: Path) -> None:
        self.folder, self.cache, self.output = folder, folder / "cache", folder / "output.txt"
        self.files = write_corpus(folder / "corpus", SIZES)
        record = folder / "operations.json"

        def counted() -> None:
            operations = FileOperations(self.cache)
            operations.watch()
            self.build()
            record.write_text(json.dumps(operations.seen))

        if status := in_a_child(counted, self.output):
            raise RuntimeError(f"the cache that nobody kills ended with {status}:\n{self.output.read_text()}")
        self.operations = json.loads(record.read_text())
        self.whole = self._content()

    def build(self) -> None:
        """Build the missing parts of the cache."""
        from made_up_parses import made_up_document, made_up_parse

        from datamodules import PointerGeneratorData
        from datamodules.corpora import Files
        from datamodules.discourse.cache import ParseCache
        from datamodules.discourse.parses import ParseRequest

        data = PointerGeneratorData(Files(**self.files), vocab_size=30, cache_dir=self.cache / "corpus")
        data.prepare_data()
        parses = ParseCache(self.cache / "parses")
        missing = parses.missing([str(number) for number in range(6)])
        with parses.writer(documents=2) as writer:
            for key in missing:
                writer.add(key, made_up_parse(ParseRequest.of(made_up_document(int(key)))))

    def _content(self) -> dict[str, Any]:
        """Return names and bytes of files; for parses, whose file names vary, the keys and the damaged shards."""
        from datamodules.discourse.cache import ParseCache

        paths = [path for path in self.cache.rglob("*") if path.is_file() and path.suffix != ".safetensors"]
        content: dict[str, Any] = {str(path.relative_to(self.cache)): path.read_bytes() for path in paths}
        parses = ParseCache(self.cache / "parses")
        return content | {"keys": sorted(map(int, parses._shard_of)), "broken": parses.verify()}

    def crash(self, number: int) -> str:
        """Kill a builder at an operation, let another one build, and return the problem, if any."""
        shutil.rmtree(self.cache, ignore_errors=True)

        def killed() -> None:
            FileOperations(self.cache, number).watch()
            self.build()

        status = in_a_child(killed, self.output)
        if status != -signal.SIGKILL:
            return f"was to be killed, ended with {status}: {self.output.read_text()[-1000:]}"
        if status := in_a_child(self.build, self.output):
            return f"cannot be built ({status}): {self.output.read_text()[-1000:]}"
        content = self._content()
        names = content.keys() ^ self.whole.keys()
        names |= {name for name in content.keys() & self.whole.keys() if content[name] != self.whole[name]}
        return "; ".join(f"{'other' if name in content else 'no'} {name}" for name in sorted(names))


def problems(crashes: RunCrashes | CacheCrashes, numbers: Iterable[int]) -> Iterator[str]:
    """Kill at these operations, one after the other, and yield what is lost each time, or nothing."""
    for number in numbers:
        problem = crashes.crash(number)
        yield f"operation {number}, {crashes.operations[number - 1]}: {problem}" if problem else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="kill at each n-th operation only")
    options = parser.parse_args()
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
