"""Progress of runs, as launchers and `precis sweep status` show it."""

from pathlib import Path

from datamodules.text.printable import printable_line
from precis.runs.runs import read_metrics

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
