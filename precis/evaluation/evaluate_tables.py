"""Tables of `precis evaluate` on a terminal."""

import math
import shlex
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from datamodules.text.lines import counted, one_line
from lightning_modules.metrics.lead import describe_lead

_MOST_SYSTEMS = 3  # with a table of all measures each; more systems are rows of one table
_MOST_MEASURES = 8  # columns of that table


def show(result: Mapping[str, Any], console: Console) -> None:
    """Print the results of `evaluate` as tables."""
    name = ", ".join(result["files"])
    if len(result["systems"]) > _MOST_SYSTEMS:
        _show_ranking(result["scores"], name, console)
    else:
        for system in result["systems"] or [None]:
            table = _table(system or name, "measure", "mean", "95 % interval", "documents")
            for row in (row for row in result["scores"] if row["system"] == system):
                interval = "none" if row["low"] is None else f"{row['low']:.2f} to {row['high']:.2f}"
                table.add_row(row["measure"], _number(row["mean"]), interval, f"{row['documents']:,}")
            console.print(table)
    empty = result["empty_predictions"]
    counts = f"{counted(result['summaries'], 'summary')} of {counted(result['documents'], 'document')}"
    console.print(f"{counts}; {empty or 'no'} empty prediction{'' if empty == 1 else 's'}", highlight=False)
    intervals = f"{100 * result['level']:.0f} % intervals: percentile bootstrap over documents"
    console.print(f"{intervals}, {result['resamples']:,} resamples, seed {result['seed']}", highlight=False)
    # a common signature for measures that only differ in the name
    measures: dict[str, dict[str, None]] = {}
    for row in result["scores"]:
        measures.setdefault(row["signature"].partition("|")[2], {})[row["measure"]] = None
    signatures = [f"{','.join(names)}|{settings}" for settings, names in measures.items()]
    print("signatures", *signatures, sep="\n  ")  # rich would wrap them; users copy them
    for metric, reason in result["left_out"].items():
        print(f"left out: {metric}: {reason}")
    for note in result["notes"]:
        print(f"note: {note}")
    print(f"scores of every document: {', '.join(result['scores_files'])}", flush=True)
    if result["lead1"]:
        print(describe_lead(result["lead1"]))
    files = result["files"]
    if all(file.endswith(".jsonl") for file in files) and len(result["systems"]) in (0, len(files)):
        print(f"next: {shlex.join(['precis', 'compare', *files, '--html', 'page.html'])}")


def _table(title: str, *columns: str) -> Table:
    """Return an empty table whose first column has names, and the others numbers."""
    table = Table(title=Text(one_line(title)))
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left")
    return table


def _show_ranking(rows: list[dict[str, Any]], title: str, console: Console) -> None:
    """Print a row for each system, the best by the first measure first."""
    means: dict[str, dict[str, float | None]] = {}
    for row in rows:
        means.setdefault(row["system"], {})[row["measure"]] = row["mean"]
    measures = list(dict.fromkeys(row["measure"] for row in rows))
    table = _table(title, "system", *measures[:_MOST_MEASURES])
    first = measures[0]

    def rank(system: str) -> float:
        mean = means[system][first]
        return math.inf if mean is None else -mean

    for system in sorted(means, key=rank):
        table.add_row(Text(one_line(system)), *(_number(means[system][name]) for name in measures[:_MOST_MEASURES]))
    console.print(table)
    if len(measures) > _MOST_MEASURES:
        console.print(f"{len(measures) - _MOST_MEASURES} more measures: see --json", highlight=False)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"
