"""Tables of `precis evaluate` on a terminal."""

import shlex
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from datamodules.text.lines import counted, one_line
from lightning_modules.metrics.lead import describe_lead

_MAX_TABLES = 3  # up to this number of systems, each has a table; more systems become lines of a single table
_MAX_COLUMNS = 8  # maximum number of measures in the single table, so that it fits a terminal


def show(result: Mapping[str, Any], console: Console) -> None:
    """Print the results of `evaluate` as tables."""
    name = ", ".join(result["files"])
    if len(result["systems"]) > _MAX_TABLES:  # one table with a line for each system
        _show_ranking(result["scores"], name, console)
    else:
        for system in result["systems"] or [None]:  # None: the outputs name no system
            table = _table(system or name, "measure", "mean", "95 % interval", "documents")
            for score in (score for score in result["scores"] if score["system"] == system):
                interval = "none" if score["low"] is None else f"{score['low']:.2f} to {score['high']:.2f}"
                table.add_row(score["measure"], _number(score["mean"]), interval, f"{score['documents']:,}")
            console.print(table)
    counts = f"{counted(result['summaries'], 'summary')} of {counted(result['documents'], 'document')}"
    console.print(f"{counts}; {counted(result['empty_predictions'], 'empty prediction')}", highlight=False)
    intervals = f"{100 * result['level']:.0f} % intervals: percentile bootstrap over documents"
    console.print(f"{intervals}, {result['resamples']:,} resamples, seed {result['seed']}", highlight=False)
    # A signature is NAME|SETTINGS. Measures with the same settings have a line in common.
    measures: dict[str, dict[str, None]] = {}  # by settings: names as dict keys, which are unique and keep their order
    for score in result["scores"]:
        measures.setdefault(score["signature"].partition("|")[2], {})[score["measure"]] = None
    signatures = [f"{','.join(names)}|{settings}" for settings, names in measures.items()]
    print("signatures", *signatures, sep="\n  ")  # not by rich, which would break lines that users copy
    for metric, reason in result["left_out"].items():
        print(f"left out: {metric}: {reason}")
    for note in result["notes"]:
        print(f"note: {note}")
    print(f"scores of every document: {', '.join(result['scores_files'])}")
    if result["lead1"]:  # scores of first sentences, for comparison
        print(describe_lead(result["lead1"]))
    files = result["files"]  # `precis compare` reads only JSON Lines, with one system per file
    if all(file.endswith(".jsonl") for file in files) and len(result["systems"]) in (0, len(files)):
        means = {score["measure"]: score["mean"] for score in result["scores"]}
        metric = []
        if not {"rouge1", "rouge2", "rougeLsum"} <= means.keys():  # the default of `precis compare`
            metric = ["--metric", ",".join(name for name, mean in means.items() if mean is not None)]
        print(f"next: {shlex.join(['precis', 'compare', *files, *metric, '--html', 'page.html'])}")


def _table(title: str, *columns: str) -> Table:
    """Return an empty table with a left-aligned column of names, and right-aligned columns of numbers."""
    table = Table(title=Text(one_line(title)))
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    return table


def _show_ranking(scores: list[dict[str, Any]], title: str, console: Console) -> None:
    """Print a table of means with a line for each system, from the highest to the lowest mean of the first measure."""
    means: dict[str, dict[str, float | None]] = {}  # by system and measure; None if no document has a score
    for score in scores:
        means.setdefault(score["system"], {})[score["measure"]] = score["mean"]
    measures = list(dict.fromkeys(score["measure"] for score in scores))
    table = _table(title, "system", *measures[:_MAX_COLUMNS])  # as many as fit a terminal
    first = {system: by_measure[measures[0]] for system, by_measure in means.items()}  # mean of the first measure
    for system in sorted(means, key=lambda system: (first[system] is None, -(first[system] or 0))):  # None comes last
        table.add_row(Text(one_line(system)), *(_number(means[system][name]) for name in measures[:_MAX_COLUMNS]))
    console.print(table)
    if len(measures) > _MAX_COLUMNS:
        console.print(f"{len(measures) - _MAX_COLUMNS} more measures: see --json", highlight=False)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"
