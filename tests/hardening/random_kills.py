"""Sends signals to small training runs of every model at random moments, resumes them, and compares the result.

    make harden        (or: python tests/hardening/random_kills.py --kills 50 --out kills.json)

A run gets SIGKILL, SIGTERM, SIGINT, or SIGINT twice at a moment drawn uniformly from its duration, the building of its
data included: each second time the cache is empty. It is then resumed until it ends by itself. Afterwards its folder
has to be that of a run which was not interrupted: checkpoints with the same weights, optimizer states and step bit for
bit, the same metrics.csv, config and text, and no other file. No output may hold a traceback.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))  # first, since tests/ has folders of the same names

import torch
from conftest import write_corpus
from crash_points import SIZES
from processes import Parsed, differences, in_a_child

SIGNALS = {"SIGKILL": [signal.SIGKILL], "SIGTERM": [signal.SIGTERM], "SIGINT": [signal.SIGINT]}
SIGNALS["SIGINT twice"] = [signal.SIGINT, signal.SIGINT]
CASES = ["agents-m7", "bertsum", "matchsum", "bertsum-abs", "graphsum"]
CASES += ["pegasus", "gap-sentences", "pointer-coverage", "rstformer"]
TRAINER = {"max_epochs": -1, "max_steps": 6, "val_check_interval": 2, "check_val_every_n_epoch": "null"}
TRAINER |= {"num_sanity_val_steps": 0, "accelerator": "cpu", "log_every_n_steps": 1}
TRAINER |= {"enable_progress_bar": "false", "enable_model_summary": "false"}


class Outcome(NamedTuple):
    """Outcome of an interrupted run; an empty problem means that nothing was lost."""

    case: str
    signals: str
    moment: float
    status: int
    problem: str


class InterruptedRun:
    """A small `precis fit` of a model, interrupted and resumed.

    Args:
        case: model, DataModule and their arguments.
        folder: working folder.
        wandb: value of --wandb.
    """

    def __init__(self, case: Any, folder: Path, wandb: str) -> None:
        self.name, self.folder = case.name, folder
        self.run, self.whole, self.cache = folder / "run", folder / "whole", folder / "cache"
        self.output = folder / "output.txt"
        files = write_corpus(folder / "corpus", SIZES)
        arguments = [*case.arguments(files), *(f"--trainer.{name}={value}" for name, value in TRAINER.items())]
        arguments += ["--seed_everything=3", "--save_every=3", f"--wandb={wandb}", "--previews=0", "--resume=auto"]
        self.command = Parsed("fit", *arguments, f"--run_dir={self.run}")
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
        self.command.carry_out()

    def interrupt(self, name: str, empty_cache: bool, share: float) -> Outcome:
        """Interrupt a run after a share of its usual duration, resume it, and compare it with the uninterrupted one."""
        shutil.rmtree(self.run, ignore_errors=True)
        if empty_cache:
            shutil.rmtree(self.cache)
        moment = share * self.seconds[empty_cache]
        signals = SIGNALS[name]
        status = in_a_child(self._fit, self.output, signals, moment)
        return Outcome(self.name, name, round(moment, 3), status, self._problem(status, signals[0]))

    def _problem(self, status: int, number: int) -> str:
        text = self.output.read_text(errors="replace")
        # 0: the run had ended before the signal came
        if status not in (0, 128 + number, -number) or "Traceback" in text:
            return f"ended with status {status}: {text[-2000:]}"
        if status := in_a_child(self._fit, self.output):
            return f"cannot be resumed ({status}): {self.output.read_text(errors='replace')[-2000:]}"
        return differences(self.run, self.whole)


def plan(kills: int, rng: random.Random) -> list[tuple[str, bool, float]]:
    """Return signals, whether the cache is empty, and share of the duration: for each case `kills` times SIGKILL and
    two fifths as many of each of the others."""
    counts = {name: kills if name == "SIGKILL" else max(1, kills * 2 // 5) for name in SIGNALS}
    order = [(name, number % 2 == 0) for name, count in counts.items() for number in range(count)]
    return [(name, empty_cache, rng.uniform(0, 0.97)) for name, empty_cache in order]


def table(outcomes: list[Outcome]) -> str:
    """Return a Markdown table of counts for each case: resumed without loss of those tried, by kind of signal."""
    lines = ["| model | " + " | ".join(SIGNALS) + " | lost |", "|---|" + "---|" * (len(SIGNALS) + 1)]
    for case in dict.fromkeys(outcome.case for outcome in outcomes):
        ours = [outcome for outcome in outcomes if outcome.case == case]
        tried, lost = Counter(outcome.signals for outcome in ours), sum(bool(outcome.problem) for outcome in ours)
        survived = Counter(outcome.signals for outcome in ours if not outcome.problem)
        cells = [f"{survived[name]} of {tried[name]}" for name in SIGNALS]
        lines.append(f"| {case} | {' | '.join(cells)} | {lost} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10, help="SIGKILLs of each model; two fifths of each other signal")
    parser.add_argument("--cases", nargs="*", default=CASES, help="names of models; see tests/cases.py")
    parser.add_argument("--wandb", choices=["off", "offline"], default="off", help="whether runs write offline records")
    parser.add_argument("--seed", type=int, default=1, help="seed of the moments")
    parser.add_argument("--out", type=Path, default=None, help="JSON file with every outcome")
    options = parser.parse_args()
    torch.set_num_threads(1)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="precis-kills-") as place:
        os.environ |= {"PRECIS_CACHE": str(Path(place) / "cache"), "WANDB_MODE": "offline"}
        from cases import CASES as ALL_CASES

        from precis.command_line.run_command import _quiet
        from precis.config.load_classes import load_classes
        from precis.runs import run_folder

        run_folder._git = lambda *arguments: None  # which asks other processes, and changes no file
        _quiet()
        load_classes()
        for case in (case for case in ALL_CASES if case.name in options.cases):
            folder = Path(place) / case.name
            folder.mkdir()
            interrupted, started = InterruptedRun(case, folder, options.wandb), time.monotonic()
            for step in plan(options.kills, random.Random(f"{options.seed} {case.name}")):
                outcomes.append(interrupted.interrupt(*step))
                if outcomes[-1].problem:
                    print(*outcomes[-1], file=sys.stderr, flush=True)
            print(f"{case.name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
            shutil.rmtree(folder)
            if options.out:
                options.out.write_text(json.dumps([one._asdict() for one in outcomes], indent=1), encoding="utf-8")
    print(table(outcomes))
    return int(any(outcome.problem for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
