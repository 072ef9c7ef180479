"""`precis runs`: the run folders below a folder, with score, step and state."""

import csv
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from datamodules.documents import UserError
from datamodules.text.lines import load_json, printable_line
from precis.files.data_files import read_yaml
from precis.runs.run_state import read_state

STYLES = {"finished": "green", "running": "cyan", "stopped": "yellow"}
STYLES |= dict.fromkeys(("killed", "failed", "diverged"), "red")


def runs(arguments: list[str]) -> None:
    """`precis runs [FOLDER]`: list run folders with model, score, step and state."""
    parser = ArgumentParser(prog="precis runs", description=runs.__doc__, exit_on_error=False)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs"), help="folder to search; by default runs")
    parser.add_argument("--json", action="store_true", help="one JSON object for each run instead of a table")
    options = parser.parse_args(arguments)
    folder = options.folder
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; give the one that your run folders are in")
    rows = [describe_run(run) for run in find_runs(folder)]
    if not rows:
        raise UserError(f"{folder}: no run folder in it; `precis fit --run_dir {folder}/NAME` makes one")
    if options.json:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
        return
    _print_table(folder, rows)


def find_runs(folder: Path) -> Iterator[Path]:
    """Yield the run folders in a folder, at any depth, in the order of their names."""
    for place, folders, files in os.walk(folder):
        folders.sort()
        if "config.yaml" in files and ("checkpoints" in folders or "environment.json" in files):
            folders.clear()
            yield Path(place)


def describe_run(run: Path) -> dict[str, Any]:
    """Return what is known of a run from its small files.

    Returns:
        `run`; `state` (see `read_state`); `model`, its class; `step`, the last one; `monitor`, the score that selects
        checkpoints, and `best`, its best value; `test`, the ROUGE-1, -2 and -Lsum that `precis test` wrote, by name;
        `changed`, the time of the last change in seconds since the epoch; and `problem`, if the config cannot be read.
        Unknown values are None.
    """
    state = read_state(run)
    row = {"run": str(run), "state": state["state"], "model": None, "step": state["step"], "monitor": None}
    last_change = max(path.stat().st_mtime for path in (run, *run.iterdir()) if path.exists())
    row |= {"best": None, "test": None, "changed": last_change, "problem": None}
    try:
        config = read_yaml(run / "config.yaml")
        row["model"] = config["model"]["class_path"].rpartition(".")[2]
        checkpoint = config.get("checkpoint") or {}
        row["monitor"], mode = checkpoint.get("monitor", "val/rouge1"), checkpoint.get("mode")
    except (UserError, OSError, KeyError, TypeError, AttributeError) as error:
        return row | {"problem": f"config.yaml: {error}"}
    last_step, values = read_metrics(run, row["monitor"])
    row["step"] = last_step if row["step"] is None or state["state"] in ("running", "killed") else row["step"]
    row["best"] = (min if mode == "min" else max)(values, default=None)
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        scores = load_json((run / "results.json").read_text(encoding="utf-8"))["scores"]
        names = {name: f"test/{name}" for name in ("rouge1", "rouge2", "rougeLsum")}
        row["test"] = {name: scores[key] for name, key in names.items() if key in scores}
    return row


def read_metrics(run: Path, monitor: str) -> tuple[int | None, list[float]]:
    """Return the number of steps in metrics.csv, or None, and all values of a score."""
    step, values = None, []
    with suppress(OSError, ValueError, csv.Error), (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            step = int(row["step"]) + 1 if row.get("step") else step  # counted from 0
            values += [float(row[monitor])] if row.get(monitor) else []
    return step, values


def _print_table(folder: Path, rows: list[dict[str, Any]]) -> None:
    table = Table()
    for name in ("run", "model", "state", "step", "validation", "test R-1/2/Lsum", "changed"):
        justify = "right" if name in ("step", "changed") else "left"
        table.add_column(name, justify=justify, no_wrap=True)
    for row in rows:
        best = "" if row["best"] is None else f"{row['monitor']} {row['best']:.2f}"
        test = " / ".join(f"{value:.2f}" for value in (row["test"] or {}).values())
        name = Path(row["run"]).relative_to(folder).as_posix()
        table.add_row(
            Text(printable_line(name if name != "." else row["run"])),
            Text(printable_line(row["model"] or row["problem"])),
            Text(row["state"], style=STYLES.get(row["state"], "")),
            "" if row["step"] is None else f"{row['step']:,}",
            Text(printable_line(best)),
            test,
            f"{format_seconds(max(time.time() - row['changed'], 0))} ago",
        )
    console = Console()
    # the width that the table would have without a limit
    if console.measure(table, options=console.options.update(max_width=10_000)).maximum <= console.width:
        console.print(table)
        return
    for cells in zip(*(column.cells for column in table.columns)):  # too wide: the name, and below it what is known
        console.print(cells[0], soft_wrap=True)
        facts = []
        for column, cell in zip(table.columns[1:], cells[1:]):
            # only the numbers of these columns are unclear without the header
            header = f"{column.header} " if column.header.startswith(("step", "test")) else ""
            facts += [Text.assemble(header, cell)] if str(cell) else []
        console.print(Padding(Text("  ").join(facts), (0, 0, 0, 2)))


def format_seconds(seconds: float) -> str:
    """Return a duration in its two largest units, such as `2 h 5 min`."""
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    rest, parts = round(seconds), []
    for unit, size in units:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
