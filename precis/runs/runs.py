"""`precis runs`: the run folders below a folder, with score, step and state."""

import csv
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shlex import quote
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
    descriptions = [describe_run(run) for run in find_runs(folder)]
    if not descriptions:
        raise UserError(f"{folder}: no run folder in it; `precis fit --run_dir {quote(str(folder))}/NAME` makes one")
    if options.json:
        for description in descriptions:
            print(json.dumps(description, ensure_ascii=False))  # on a line of its own
    else:
        _print_table(folder, descriptions)


def find_runs(folder: Path) -> Iterator[Path]:
    """Yield the run folders in a folder, at any depth, in the order of their names."""
    for place, folders, files in os.walk(folder):
        folders.sort()  # in place: `os.walk` goes on with this list
        if "config.yaml" in files and ("checkpoints" in folders or "environment.json" in files):
            folders.clear()  # no run is inside another one
            yield Path(place)


def describe_run(run: Path) -> dict[str, Any]:
    """Describe a run by its config, state.json, metrics.csv and results.json, without reading a checkpoint.

    Returns:
        `run`; `state` (see `read_state`); `model`, its class; `step`, the last one; `monitor`, the score that selects
        checkpoints, and `best`, its best value; `test`, the ROUGE-1, -2 and -Lsum that `precis test` wrote, by name;
        `changed`, the time of the last change in seconds since the epoch; and `problem`, if the config cannot be read.
        Unknown values are None.
    """
    state = read_state(run)
    description = {"run": str(run), "state": state["state"], "model": None, "step": state["step"], "monitor": None}
    last_change = max(path.stat().st_mtime for path in (run, *run.iterdir()) if path.exists())  # not broken links
    description |= {"best": None, "test": None, "changed": last_change, "problem": None}
    try:
        config = read_yaml(run / "config.yaml")
        description["model"] = config["model"]["class_path"].rpartition(".")[2]
        checkpoint = config.get("checkpoint") or {}
        monitor, mode = checkpoint.get("monitor", "val/rouge1"), checkpoint.get("mode")  # val/rouge1, max: defaults
    except (UserError, OSError, KeyError, TypeError, AttributeError) as error:
        return description | {"problem": f"config.yaml: {error}"}
    last_step, values = read_metrics(run, monitor)
    if description["step"] is None or state["state"] in ("running", "killed"):  # state.json may be a minute old
        description["step"] = last_step
    description |= {"monitor": monitor, "best": (min if mode == "min" else max)(values, default=None)}
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):  # not tested yet, or not a valid file
        scores = load_json((run / "results.json").read_text(encoding="utf-8"))["scores"]
        names = {name: f"test/{name}" for name in ("rouge1", "rouge2", "rougeLsum")}
        description["test"] = {name: scores[key] for name, key in names.items() if key in scores}
    return description


def read_metrics(run: Path, monitor: str) -> tuple[int | None, list[float]]:
    """Return the number of steps in metrics.csv (None without a row), and the values in column `monitor`, in order."""
    steps, values = None, []
    # A missing file, or an incomplete last line while training writes, is no error: complete lines count.
    with suppress(OSError, ValueError, csv.Error), (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            steps = int(row["step"]) + 1 if row.get("step") else steps  # the column counts from 0
            values += [float(row[monitor])] if row.get(monitor) else []
    return steps, values


def _print_table(folder: Path, descriptions: list[dict[str, Any]]) -> None:
    """Print results of `describe_run` as a table; if the terminal is too narrow, print two lines for each run."""
    table = Table()
    for name in ("run", "model", "state", "step", "validation", "test R-1/2/Lsum", "changed"):
        table.add_column(name, justify="right" if name in ("step", "changed") else "left", no_wrap=True)
    for run in descriptions:
        best = "" if run["best"] is None else f"{run['monitor']} {run['best']:.2f}"
        test = " / ".join(f"{value:.2f}" for value in (run["test"] or {}).values())
        name = Path(run["run"]).relative_to(folder).as_posix()  # "." if the folder is a run itself
        table.add_row(
            Text(printable_line(name if name != "." else run["run"])),
            Text(printable_line(run["model"] or run["problem"])),
            Text(run["state"], style=STYLES.get(run["state"], "")),
            "" if run["step"] is None else f"{run['step']:,}",
            Text(printable_line(best)),
            test,
            f"{format_seconds(max(time.time() - run['changed'], 0))} ago",  # clocks of file servers may be ahead
        )
    console = Console()
    # 10,000 columns: the width that the table would have without a limit
    if console.measure(table, options=console.options.update(max_width=10_000)).maximum <= console.width:
        console.print(table)
        return
    for cells in zip(*(column.cells for column in table.columns)):  # row by row
        console.print(cells[0], soft_wrap=True)  # the name of the run; the other cells are in the line below
        details = []
        for column, cell in zip(table.columns[1:], cells[1:]):
            # Only the numbers in these columns are unclear without the header.
            header = f"{column.header} " if column.header.startswith(("step", "test")) else ""
            details += [Text.assemble(header, cell)] if str(cell) else []
        console.print(Padding(Text("  ").join(details), (0, 0, 0, 2)))  # indented by 2


def format_seconds(seconds: float) -> str:
    """Return a duration in its two largest units, such as `2 h 5 min`."""
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))  # in seconds
    rest, parts = round(seconds), []
    for unit, size in units:
        count, rest = divmod(rest, size)
        if count or parts:  # no leading zeros
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
