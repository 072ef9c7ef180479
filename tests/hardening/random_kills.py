"""Sends signals to small training runs of every model at random moments, resumes them, and compares the result.

    make harden        (or: python tests/hardening/random_kills.py --kills 50)

A run gets SIGKILL, SIGTERM, SIGINT, or SIGINT twice at a moment drawn uniformly from its duration, the building of its
data included: each second time the cache is empty. It is then resumed until it ends by itself. Afterwards its folder
has to be that of a run which was not interrupted: checkpoints with the same weights, optimizer states and step bit for
bit, the same metrics.csv, config and text, and no other file. No output may hold a traceback.
"""

import json
import os
import random
import shutil
import signal
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import harness  # first, since it finds the others
from cases import CASES as ALL_CASES
from conftest import QUIET, write_corpus
from harness import differences, in_a_child, parsed

SIGNALS = {"SIGKILL": [signal.SIGKILL], "SIGTERM": [signal.SIGTERM], "SIGINT": [signal.SIGINT]}
SIGNALS["SIGINT twice"] = [signal.SIGINT, signal.SIGINT]
CASES = ["agents-m7", "bertsum", "matchsum", "bertsum-abs", "graphsum"]
CASES += ["pegasus", "gap-sentences", "pointer-coverage", "rstformer"]
TRAINER = {name: json.dumps(value).strip('"') for name, value in (harness.SHORT | QUIET).items()}


class InterruptedRun:
    """A small `precis fit` of a model, interrupted and resumed."""

    def __init__(self, case: Any, folder: Path, wandb: str) -> None:
        self.name = case.name
        self.run, self.whole, self.cache = folder / "run", folder / "whole", folder / "cache"
        self.output = folder / "output.txt"
        files = write_corpus(folder / "corpus", harness.SIZES)
        arguments = [*case.arguments(files), *(f"--trainer.{name}={value}" for name, value in TRAINER.items())]
        arguments += ["--seed_everything=3", "--save_every=3", f"--wandb={wandb}", "--previews=0", "--resume=auto"]
        self.command = parsed("fit", *arguments, f"--run_dir={self.run}")
        self.seconds = {True: self._whole_run(), False: self._whole_run()}  # by whether the cache is empty

    def _whole_run(self) -> float:
        """Train without an interruption, and return the duration in seconds."""
        shutil.rmtree(self.whole, ignore_errors=True)
        started = time.monotonic()
        if status := in_a_child(self._fit, self.output):
            raise RuntimeError(f"{self.name}: training ended with {status}:\n{self.output.read_text()}")
        seconds = time.monotonic() - started
        self.run.rename(self.whole)
        return seconds

    def _fit(self) -> None:
        os.environ["PRECIS_CACHE"] = str(self.cache)
        self.command()

    def interrupt(self, name: str, empty_cache: bool, share: float) -> str:
        """Interrupt a run after a share of its usual duration, resume it, and return what is lost, or nothing."""
        shutil.rmtree(self.run, ignore_errors=True)
        if empty_cache:
            shutil.rmtree(self.cache)
        moment, signals = share * self.seconds[empty_cache], SIGNALS[name]
        status = in_a_child(self._fit, self.output, signals, moment)
        text = self.output.read_text(errors="replace")
        # 0: the run had ended before the signal came
        if status not in (0, 128 + signals[0], -signals[0]) or "Traceback" in text:
            problem = f"ended with status {status}: {text[-2000:]}"
        elif status := in_a_child(self._fit, self.output):
            problem = f"cannot be resumed ({status}): {self.output.read_text(errors='replace')[-2000:]}"
        else:
            problem = differences(self.run, self.whole)
        return problem and f"after {moment:.3f} s: {problem}"


def kill_runs(options: Namespace, place: Path) -> int:
    harness.print_head(*harness.HEAD)
    lost = 0
    for case in (case for case in ALL_CASES if case.name in options.cases):
        folder = place / case.name
        folder.mkdir()
        interrupted = InterruptedRun(case, folder, options.wandb)
        rng = random.Random(f"{options.seed} {case.name}")
        for name in SIGNALS:
            count = options.kills if name == "SIGKILL" else max(1, options.kills * 2 // 5)
            moments = [(number % 2 == 0, rng.uniform(0, 0.97)) for number in range(count)]
            problems = (interrupted.interrupt(name, *moment) for moment in moments)
            lost += harness.report(f"{case.name}, {name}", problems)
        shutil.rmtree(folder)
    return lost


if __name__ == "__main__":
    harness.run(
        __doc__, kill_runs,
        kills=(10, "SIGKILLs of each model; two fifths of each other signal"),
        cases=(CASES, "names of models; see tests/cases.py"),
        wandb=("off", "`offline` lets runs write offline records"),
    )  # fmt: skip
