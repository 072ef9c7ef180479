"""`precis compare RUN RUN ...`: runs side by side, from their folders alone."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser
from jsonargparse.typing import PositiveInt
from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.evaluation.compare_page import write_page
from experiments.evaluation.comparison import (
    DEFAULT,
    Comparison,
    cell_lines,
    choose_baseline,
    choose_measures,
    compare_systems,
    how_computed,
)
from experiments.evaluation.statistics import RESAMPLES
from experiments.evaluation.systems import config_differences, read_all, systems_of


def compare(arguments: list[str]) -> None:
    """`precis compare RUN RUN ...`: a table of systems (runs that differ in their seed alone are one), and a page.

    A RUN is a run folder with predictions, a sweep folder for all of its runs, or a file that `precis baseline` wrote.
    """
    parser = ArgumentParser(prog="precis compare", description=compare.__doc__, exit_on_error=False)
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, sweep folders, files of predictions")
    parser.add_argument("--baseline", type=Path | None, default=None, help="the run (or system) to compare to")
    parser.add_argument("--metric", type=str | None, default=None, help=f"{','.join(DEFAULT)} if not given")
    parser.add_argument("--html", type=Path | None, default=None, help="write a page, one file that needs no network")
    parser.add_argument("--documents", type=PositiveInt, default=1000, help="shown in the page, at most")
    parser.add_argument("--resamples", type=PositiveInt, default=RESAMPLES, help="of the bootstrap")
    parser.add_argument("--seed", type=int, default=0, help="of their draws")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options = parser.parse_args(arguments)
    systems = systems_of(read_all([Path(str(run)) for run in options.runs]))
    baseline = choose_baseline(systems, Path(str(options.baseline)) if options.baseline else None)
    measures = choose_measures(systems, options.metric)
    found = compare_systems(systems, measures, baseline, options.resamples, options.seed)
    how = how_computed(found, options.resamples, options.seed)
    if options.html:
        write_page(Path(str(options.html)), found, how, options.documents)
    if options.json:
        print(json.dumps(as_json(found), ensure_ascii=False, indent=1))
    else:
        show(found, how, Console())


def as_json(found: Comparison) -> dict[str, Any]:
    """A comparison for machines."""
    systems = []
    for system, row in zip(found.systems, found.cells):
        runs = [{"path": str(run.path), "seed": run.seed} for run in system.runs]
        scores = {name: asdict(cell) for name, cell in zip(found.measures, row)}
        systems.append({"name": system.name, "runs": runs, "scores": scores})
    return {
        "documents": found.documents,
        "baseline": found.systems[found.baseline].name,
        "systems": systems,
        "differences": config_differences(found.systems),
        "notes": found.notes,
    }


def show(found: Comparison, how: list[str], console: Console) -> None:
    """Prints the table."""
    table = Table(show_lines=True)
    # a narrow terminal folds the numbers, and never hides whose they are
    table.add_column("system", overflow="fold", min_width=10)
    table.add_column("seeds", justify="right", min_width=5)
    for name in found.measures:
        table.add_column(name, justify="right", overflow="fold")
    for index, (system, row) in enumerate(zip(found.systems, found.cells)):
        name = Text(system.name) + (Text("\n(baseline)", style="dim") if index == found.baseline else Text())
        table.add_row(name, str(len(system.runs)), *("\n".join(cell_lines(cell)) for cell in row))
    console.print(table)
    for line in how:
        console.print(Text(line))
