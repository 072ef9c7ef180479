"""Sweep folders of somebody else: every file of one is damaged or hostile, every command reads it.

    make harden        (or: python tests/hardening/sweep_folders.py --cases 300)

A case has survived if the command succeeds or ends with one line, runs no command of the folder, and changes no file
outside of the folder.
"""

import itertools
import json
import os
import random
import shutil
import sys
import tempfile
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import harness  # first, since it finds the others
import yaml
from conftest import write, write_lines
from harness import in_a_child
from hostile_configs import VALUES, problem_of, run_command, run_whole
from pytest import MonkeyPatch

from precis.command_line.cli import main as precis
from precis.sweeping import job as jobs
from precis.sweeping.composition import compose
from precis.sweeping.grid import read_sweep
from precis.sweeping.search import compose_search, record_search
from precis.sweeping.sweep_folder import record, write_launch

PROBLEMS = ("tracebacks", "hangs", "ran", "unexplained", "written")
COMMANDS = [
    "sweep status OUT", "sweep status OUT --json", "sweep logs OUT", "sweep cancel OUT", "sweep retry OUT",
    "sweep retry OUT --launcher slurm", "sweep point OUT --index 0",
    "sweep work OUT --worker 1", "compare OUT", "fit --run RUN", "test --run RUN",
]  # fmt: skip
# stand-ins for SLURM, which run the lines of a batch script
SLURM = {"sbatch": 'sh "$1" > /dev/null 2>&1\necho Submitted batch job 7', "srun": "true", "squeue": "true"}


class _Process:
    """Stand-in for `subprocess.Popen` that has run a command of `precis` in a fork of this process."""

    def __init__(self, command: list[str], stdout: Any, **_: Any) -> None:
        output = Path(tempfile.gettempdir()) / f"fork-{os.getpid()}.txt"
        self.returncode = in_a_child(lambda: sys.exit(precis(list(command[len(jobs.COMMAND) :]))), output)
        stdout.write(output.read_text(encoding="utf-8", errors="replace"))

    def poll(self) -> int:
        return self.returncode


def make_folders(base: dict[str, Any], folder: Path) -> list[Path]:
    """Return the folder of a sweep, one of whose two points is trained and tested, and that of a search."""
    config = write(folder / "base.yaml", base)
    search = {"trials": 2, "keys": {"model.dropout": {"uniform": [0.0, 0.5]}}}
    contents = {"grid": {"seeds": [1, 2]}, "found": {"search": search}}
    for name, content in contents.items():
        content |= {"base": str(config), "set": {"trainer.max_steps": 1}}
        sweep, out = read_sweep(write(folder / f"{name}.yaml", content)), folder / name
        if sweep.search:
            record_search(sweep, compose_search(sweep)[0].config, out)
            arguments = ["sweep", "work", str(out), "--worker=1"]
        else:
            record(sweep, compose(sweep), out)
            arguments = ["sweep", "point", str(out), "--index=0"]
        run_whole(arguments)
        write_launch(out, "slurm", {"a": "7_1"}, profile={"minutes": 5}, pid=os.getpid())
    return [folder / name for name in contents]


def damage(out: Path, path: Path, payload: Any, outside: Path, rng: random.Random) -> None:
    """Damage a file of a sweep folder, or replace it or the folder of its run by a link."""
    kind = rng.choice(["payload", "payload", "payload", "value", "value", "bytes", "link", "linked folder", "folder"])
    text = path.read_bytes()
    if kind in ("payload", "value"):
        content: Any = [str(text)]
        with suppress(yaml.YAMLError, UnicodeDecodeError):
            content = yaml.safe_load(text)
        place, key = {"content": content}, "content"
        while place[key] and isinstance(place[key], dict | list) and (key == "content" or rng.random() < 0.6):
            place = place[key]
            key = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
        place[key] = rng.choice([payload, [payload]]) if kind == "payload" else rng.choice(VALUES)
        text = (json.dumps if path.suffix == ".json" else yaml.safe_dump)(content).encode()
    elif kind == "bytes":
        at = rng.randrange(len(text) + 1)
        text = rng.choice([b"", b"[]", b"[" * 50_000, text[:at], text[:at] + rng.randbytes(3) + text[at + 3 :]])
    if kind in ("payload", "value", "bytes"):
        path.write_bytes(text)
        return
    target = path.parent if kind == "linked folder" and path.parent != out else path
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    path.mkdir() if kind == "folder" else target.symlink_to(outside if target != path else outside / "victim.jsonl")


def payloads(trap: Path, outside: Path) -> list[Any]:
    """Values with which a file could run a command, which makes `trap`, or write to another folder."""
    system = {"class_path": "os.system", "init_args": {"command": f"touch {trap}"}}
    logger = {"class_path": "pytorch_lightning.loggers.CSVLogger", "init_args": {"save_dir": str(outside)}}
    writer = {"class_path": "callbacks.PredictionWriter", "init_args": {"path": str(outside / "victim.jsonl")}}
    evaluated = f"evaluate {outside}/victim.jsonl"
    commands = [evaluated, f"{evaluated} --out {outside}/.bashrc", "sweep retry {run}", f"test --out={outside}/x.jsonl"]
    profile = {"setup": [f"touch {trap}"], "directives": {"output": str(outside / "victim.jsonl")}}
    trainer = {"trainer": {"logger": logger, "callbacks": [writer], "default_root_dir": str(outside)}}
    launch = {"launcher": "slurm", "jobs": {"a": f"--user; touch {trap}"}, "profile": profile}
    values = [system, logger, writer, profile, trainer, launch]
    return [*commands, f"touch {trap}", f"$(touch {trap})", "../outside", "--trust", str(outside), *values]


def count_sweep_folders(base: dict[str, Any], cases: int, seed: int, folder: Path) -> tuple[Counter, list[str]]:
    """Return counts over damaged sweep folders, and descriptions of what went wrong."""
    outside, trap, out, slurm = (folder / name for name in ("outside", "ran", "sent", "slurm"))
    for made in (outside, slurm, folder / "working"):
        made.mkdir(parents=True)
    row = {"id": f"$(touch {trap})", "summary": ["an otter"], "references": [["an otter"]]}
    write_lines(outside / "victim.jsonl", [row])
    for name, text in SLURM.items():
        write(slurm / name, f"#!/bin/sh\n{text}\n").chmod(0o755)
    real, counts, wrong = jobs.subprocess, Counter(), []
    with MonkeyPatch.context() as patch:
        patch.setattr(jobs, "subprocess", SimpleNamespace(Popen=_Process, STDOUT=real.STDOUT, DEVNULL=real.DEVNULL))
        patch.setenv("PATH", str(slurm), prepend=os.pathsep)
        patch.chdir(folder / "working")
        originals = make_folders(base, folder)
        before = _files(folder, out)
        for index, (original, name, command) in enumerate(itertools.islice(_cases(originals, seed), cases)):
            rng = random.Random(f"sweep folder {seed} {index}")
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(original, out)
            run = next(path.parent for path in sorted(out.glob("*/config.yaml")))
            damage(out, out / name, rng.choice(payloads(trap, outside)), outside, rng)
            status, messages = run_command(command.replace("OUT", str(out)).replace("RUN", str(run)).split())
            counts["cases"] += 1
            problem = problem_of(status, messages, trap) or _problem_of_logs(out)
            if (after := _files(folder, out)) != before:
                problem, messages, before = "written", str(set(after.items()) ^ set(before.items())), after
            if problem:
                counts[problem] += 1
                wrong.append(f"{problem} {index}: {command}, {name}: {status}: {' '.join(messages.split())[-400:]}")
    return counts, wrong


def _cases(originals: list[Path], seed: int) -> Iterator[tuple[Path, Path, str]]:
    """Yield folder, file and command; every second file is one of the sweep itself, the others are of its runs."""
    files = [(folder, path.relative_to(folder)) for folder in originals for path in sorted(folder.rglob("*"))
             if path.is_file()]  # fmt: skip
    every = [(*file, command) for file in files for command in COMMANDS]
    random.Random(seed).shuffle(every)
    of_runs = [len(name.parts) > 1 for _, name, _ in every]
    halves = [[case for case, of_run in zip(every, of_runs) if of_run is half] for half in (False, True)]
    return itertools.chain.from_iterable(zip(*map(itertools.cycle, halves)))


def _problem_of_logs(out: Path) -> str | None:
    logs = (path.read_text(encoding="utf-8", errors="replace") for path in out.glob("*/log.txt") if path.is_file())
    return "tracebacks" if any("Traceback (most recent" in text for text in logs) else None


def _files(folder: Path, out: Path) -> dict[Path, tuple[int, int]]:
    """Return size and time of all files but those of the damaged folder and the caches."""
    others = [path for path in folder.iterdir() if path != out and path.name not in ("cache", "tmp")]
    files = [path for other in others for path in [other, *other.rglob("*")] if path.is_file()]
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def damage_sweeps(options: Namespace, folder: Path) -> int:
    from files import hostile_base

    counts, wrong = count_sweep_folders(hostile_base(folder), options.cases, options.seed, folder)
    failed = sum(counts[problem] for problem in PROBLEMS)
    print(f"{counts['cases']} cases: {counts['cases'] - failed} answered in a line, {counts['tracebacks']} tracebacks, "
          f"{counts['hangs']} hangs, {counts['unexplained']} unexplained, {counts['ran']} commands run, "
          f"{counts['written']} files written outside")  # fmt: skip
    print("\n".join(wrong), file=sys.stderr)
    return failed


if __name__ == "__main__":
    harness.run(__doc__, damage_sweeps, cases=(300, "number of damaged folders"))
