"""Kills commands that do not train, and local sweeps, at random moments, runs them again, and compares what they write.

    make harden        (or: python tests/hardening/command_kills.py --kills 20 --sweeps 10)

A command counts as survived if every file that it had written when it was killed is complete, and if the same command,
run again, leaves exactly the files that it leaves if nobody kills it.

Each second kill of a sweep hits the launcher alone, whose runs continue; the others hit the launcher and its runs. The
sweep has survived if a later launch finishes every point, no point was trained by two processes at a time, and the
checkpoints, metrics and predictions of each point are those of a sweep that was not killed.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import Any

import harness  # first, since it finds the others
from conftest import pointer_generator_config, write, write_corpus
from harness import changed_names, contents, differences, in_a_child, parses_in
from run_folders import make_run, prediction, write_run

SCORES = {"rouge1": 30.0, "rouge2": 10.0, "rougeL": 25.0, "rougeLsum": 25.0}
SECONDS = 600  # after which a launch that does not end counts as hanging
RESUMED = ("log.txt", "status.json", ".lock")  # files that tell of more than one launch


class KilledCommand:
    """A command that writes into a folder: parses, or whole files, also if it is killed."""

    def __init__(self, arguments: list[str], out: Path, parses: bool = False) -> None:
        self.arguments, self.out, self.parses = arguments, out, parses
        self.output = out.parent / f"{out.name}.txt"
        started = time.monotonic()
        if status := self._run():
            raise RuntimeError(f"{arguments[0]} ended with {status}: {self.output.read_text()}")
        self.seconds, self.whole = time.monotonic() - started, self._content()

    def _content(self) -> dict[str, Any]:
        return parses_in(self.out) if self.parses else contents(self.out)

    def _run(self, **options: Any) -> int:
        self.out.mkdir(exist_ok=True)
        return in_a_child(self._command, self.output, **options)

    def _command(self) -> None:
        from precis.command_line.cli import main

        raise SystemExit(main(self.arguments))

    def kill(self, share: float) -> str:
        """Kill the command after a share of its usual duration, run it again, and return what is wrong then."""
        shutil.rmtree(self.out)
        status = self._run(signals=[signal.SIGKILL], after=share * self.seconds)
        if status not in (0, -signal.SIGKILL):
            return f"ended with status {status}: {self.output.read_text(errors='replace')[-1000:]}"
        for name, content in ({} if self.parses else contents(self.out)).items():
            if not Path(name).name.startswith(".") and content != self.whole.get(name):
                return f"{name} is not complete"
        if status := self._run():
            return f"cannot be run again ({status}): {self.output.read_text(errors='replace')[-1000:]}"
        changed = changed_names(self._content(), self.whole)
        return f"other content: {changed}" if changed else ""


def commands(folder: Path) -> dict[str, KilledCommand]:
    files = write_corpus(folder)
    rng = random.Random(0)
    words = ["the", "otter", "guards", "mill", "harbour", "tower", "every", "morning"]
    rows = [prediction(number, " ".join(rng.choices(words, k=8)), SCORES) for number in range(200)]
    runs = [make_run(folder / f"run{seed}", rows, seed=seed) for seed in (1, 2, 3)]
    bertsum = write_run(folder / "bertsum", "bertsum", files)
    text = write(folder / "text.txt", "The otter guards the mill. It sleeps in the harbour. Nobody else does.")
    corpus = f"--corpus=Files --corpus.train={files['train']} --split=train --parser=right_branching --batch_size=2"
    lines = {
        "precis parse": f"parse {corpus} --out=OUT",
        "precis evaluate": f"evaluate {runs[0]}/predictions.jsonl --resamples=100 --out=OUT/scores.jsonl",
        "precis compare --html": f"compare {' '.join(map(str, runs))} --html=OUT/page.html",
        "precis summarize --html": f"summarize --checkpoint={bertsum} --html=OUT/page.html {text}",
    }
    killed = {}
    for name, line in lines.items():
        out = folder / f"out-{line.split()[0]}"
        killed[name] = KilledCommand(line.replace("OUT", str(out)).split(), out, parses=name == "precis parse")
    return killed


class KilledSweep:
    """A sweep over two seeds of a tiny pointer-generator, trained and tested one after the other."""

    def __init__(self, folder: Path) -> None:
        self.out, self.whole, self.log = folder / "out", folder / "whole", folder / "log.txt"
        files = write_corpus(folder / "corpus", harness.SIZES)
        config = pointer_generator_config(files, 4, **harness.SHORT) | {"save_every": 3}
        del config["seed_everything"]  # which the sweep sets
        base = write(folder / "base.yaml", config)
        sweep = write(folder / "sweep.yaml", {"base": str(base), "seeds": [1, 2]})
        self.command = [sys.executable, "-m", "precis.command_line.cli", "sweep", str(sweep), "--out", str(self.out)]
        started = time.monotonic()
        if self._launch().wait(SECONDS):
            raise RuntimeError(f"the sweep failed:\n{self.log.read_text()}")
        self.seconds = time.monotonic() - started
        self.out.rename(self.whole)

    def _launch(self) -> subprocess.Popen:
        with self.log.open("w") as log:
            return subprocess.Popen(self.command, stdout=log, stderr=log, start_new_session=True)

    def kill(self, share: float, with_runs: bool) -> str:
        """Kill a sweep, or its runs too, after a share of its duration, launch it to the end; return what is lost."""
        shutil.rmtree(self.out, ignore_errors=True)
        launcher = self._launch()
        time.sleep(share * self.seconds)
        runs = _children(launcher.pid) if with_runs else []
        for process in [launcher.pid, *runs]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        launcher.wait()
        return self._launch_to_the_end() or self._differences()

    def _launch_to_the_end(self) -> str:
        """Launch until the sweep succeeds; a run that has survived its launcher is waited for."""
        until = time.monotonic() + SECONDS
        while status := self._launch().wait(SECONDS):
            text = self.log.read_text(errors="replace")
            if "another launch is running" not in text or "Traceback" in text or time.monotonic() > until:
                return f"launched again, it ends with status {status}: {text[-1000:]}"
            time.sleep(1)
        return ""

    def _differences(self) -> str:
        problems = []
        for point in (path for path in sorted(self.whole.iterdir()) if path.is_dir()):
            for folder in (self.out / point.name, point):
                for name in RESUMED:
                    (folder / name).unlink(missing_ok=True)
            problems.append(differences(self.out / point.name, point))
        return "; ".join(filter(None, problems))


def _children(process: int) -> list[int]:
    """Return the processes that a process has started, and those that these have started."""
    listed = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True).stdout
    children = [int(line) for line in listed.split()]
    return [*children, *(grandchild for child in children for grandchild in _children(child))]


def kill_all(options: Namespace, place: Path) -> int:
    harness.print_head(*harness.HEAD)
    lost = 0
    for name, command in commands(place).items():
        rng = random.Random(f"{options.seed} {name}")
        lost += harness.report(name, (command.kill(rng.uniform(0, 0.97)) for _ in range(options.kills)))
    rng, sweep = random.Random(options.seed), KilledSweep(place)
    for with_runs, name in ((False, "sweep, launcher alone"), (True, "sweep, launcher and its runs")):
        moments = [rng.uniform(0, 0.97) for _ in range(options.sweeps // 2)]
        lost += harness.report(name, (sweep.kill(moment, with_runs) for moment in moments))
    return lost


if __name__ == "__main__":
    kills, sweeps = (20, "kills of each command"), (10, "kills of sweeps, half of them of the launcher alone")
    harness.run(__doc__, kill_all, kills=kills, sweeps=sweeps)
