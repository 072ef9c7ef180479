"""Progress of a launcher: a live table on terminals, otherwise a line for each change."""
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from datamodules.text.printable import printable_line
from precis.runs.runs import read_metrics

STYLES = {"finished": "green", "finished before": "green", "failed": "red", "stopped": "yellow", "elsewhere": "yellow"}
MAX_ROWS = 30  # rows of the live table, so that it fits a terminal


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


class Progress:
    """States of named runs.

    Args:
        names: names of all runs, in their order.
    """

    def __init__(self, names: list[str]) -> None:
        self.rows = {name: ("waiting", "") for name in names}
        self.started: dict[str, float] = {}
        self.durations: dict[str, float] = {}
        self.console = Console()
        self.live = Live(console=self.console, get_renderable=self.table, refresh_per_second=1)

    def __enter__(self) -> "Progress":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def update(self, name: str, state: str, detail: str = "") -> None:
        """Update the state of a run, with details."""
        old_state = self.rows[name][0]
        self.rows[name] = (state, detail)
        now = monotonic()
        self.durations[name] = now - self.started.setdefault(name, now)
        if state != old_state and not self.console.is_terminal:
            line = f"{name}: {state}" + (f": {detail}" if detail else "")
            self.console.print(Text(printable_line(line)), soft_wrap=True)

    def table(self) -> Table:
        """Return a table of runs with state, time and details; running and failed ones first if there are too many."""
        counts: dict[str, int] = {}
        for state, _ in self.rows.values():
            counts[state] = counts.get(state, 0) + 1
        table = Table(caption=", ".join(f"{count} {state}" for state, count in counts.items()), min_width=60)
        for name in ("point", "state", "time", ""):
            table.add_column(name, justify="right" if name == "time" else "left")
        order = {"failed": 0, "waiting": 2, "finished": 3, "finished before": 3}
        shown = sorted(self.rows, key=lambda name: order.get(self.rows[name][0], 1))[:MAX_ROWS]
        for name in (name for name in self.rows if name in shown):
            state, detail = self.rows[name]
            minutes, seconds = divmod(round(self.durations.get(name, 0)), 60)
            time = f"{minutes}:{seconds:02d}" if self.durations.get(name) else ""
            style = STYLES.get(state, "")
            table.add_row(Text(printable_line(name)), Text(state, style=style), time, Text(printable_line(detail)))
        return table
