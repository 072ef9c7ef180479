"""Kills local sweeps at random moments, launches them again, and compares their runs with those of an unkilled sweep.

    make harden        (or: python tests/hardening/sweep_kills.py --kills 10)

Each second kill hits the launcher alone, whose runs continue; the others hit the launcher and its runs. The sweep has
survived if a later launch finishes every point, no point was trained by two processes at a time, and the checkpoints,
metrics and predictions of each point are those of a sweep that was not killed.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import harness  # first, since it finds the others
import yaml
from conftest import write_corpus
from processes import differences

SECONDS = 600  # after which a launch that does not end counts as hanging
RESUMED = {"log.txt", "status.json", ".lock"}  # files that tell of more than one launch


class KilledSweep:
    """A sweep over two seeds of a tiny pointer-generator, trained and tested one after the other."""

    def __init__(self, folder: Path) -> None:
        self.out, self.whole, self.log = folder / "out", folder / "whole", folder / "log.txt"
        files = write_corpus(folder / "corpus", harness.SIZES)
        config = harness.tiny_config(files, **harness.SHORT) | {"save_every": 3}
        del config["seed_everything"]  # which the sweep sets
        base, sweep = folder / "base.yaml", folder / "sweep.yaml"
        base.write_text(yaml.safe_dump(config), encoding="utf-8")
        sweep.write_text(yaml.safe_dump({"base": str(base), "seeds": [1, 2]}), encoding="utf-8")
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
        points = sorted(path for path in self.whole.iterdir() if path.is_dir())
        problems = []
        for point in points:
            ours = self.out / point.name
            for folder in (ours, point):
                for name in RESUMED:
                    (folder / name).unlink(missing_ok=True)
            problems.append(differences(ours, point))
        return "; ".join(filter(None, problems))


def _children(process: int) -> list[int]:
    """Return the processes that a process has started, and those that these have started."""
    listed = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True).stdout
    children = [int(line) for line in listed.split()]
    return [*children, *(grandchild for child in children for grandchild in _children(child))]


def main() -> int:
    options = harness.read_options(__doc__, kills=(10, "kills, half of them of the launcher alone"))
    rng = random.Random(options.seed)
    lost = 0
    with harness.prepared_folder() as place:
        print(harness.HEAD)
        sweep = KilledSweep(place)
        for with_runs, name in ((False, "launcher alone"), (True, "launcher and its runs")):
            moments = [rng.uniform(0, 0.97) for _ in range(options.kills // 2)]
            lost += harness.report(name, (sweep.kill(moment, with_runs) for moment in moments))
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
