"""Progress of runs, as launchers and `precis sweep status` show it."""

import shlex
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

from datamodules.text.lines import counted
from datamodules.text.printable import printable_line
from lightning_modules.metrics.lead import beside_lead
from precis.files.json_files import read_json
from precis.runs.runs import read_metrics
from precis.sweeping.job import Job

STYLES = {"finished": "green", "failed": "red", "interrupted": "yellow"}


def last_line(path: Path) -> str:
    """Return the last informative line of a log."""
    if not path.is_file():
        return "no output"
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


def last_metrics(run: Path) -> str:
    """Return steps done and last validation ROUGE-1 of a run that trains; nothing before its first row."""
    step, scores = read_metrics(run, "val/rouge1")
    return ("" if step is None else f"step {step}") + (f", ROUGE-1 {scores[-1]:.2f}" if scores else "")


def print_state(label: str, state: str, detail: str = "") -> None:
    """Print a line on a run whose state has changed."""
    print(printable_line(f"{label}: {state}" + (f": {detail}" if detail else "")), flush=True)


def conclude(out: Path, jobs: Sequence[Job]) -> None:
    """Print the best tested point of a sweep beside lead-1, and the command that compares all points."""
    results = [(job.label, read_json(path)) for job in jobs if (path := job.folder / "results.json").is_file()]
    scored = [(of["scores"]["test/rouge1"], label, of) for label, of in results if "test/rouge1" in of["scores"]]
    if scored:
        rouge1, label, of = max(scored, key=itemgetter(0))
        best = f"{label}: {beside_lead(rouge1, of.get('lead1'))}"
        print(printable_line(f"best of {counted(len(scored), 'point')}: {best}"))
        print(f"next: {shlex.join(['precis', 'compare', str(out), '--html', 'page.html'])}", flush=True)
