"""`precis compare RUN RUN ...`: runs side by side, from their folders alone."""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from jsonargparse import ArgumentError, ArgumentParser, Namespace
from jsonargparse.typing import PositiveInt
from rich.console import Console
from rich.text import Text

from datamodules.atomic_write import atomic_write
from datamodules.documents import UserError
from datamodules.text.lines import counted, one_line
from precis.evaluation.compare_page import write_page
from precis.evaluation.compare_tables import group_table, to_csv, to_latex
from precis.evaluation.compared_systems import config_differences, read_all, rescore, systems_of
from precis.evaluation.comparison import (
    DEFAULT,
    Comparison,
    cell_columns,
    choose_baseline,
    choose_measures,
    compare_systems,
    how_computed,
)
from precis.runs.prediction_files import SPLITS

TABLES = {
    "latex": ("LaTeX for booktabs", to_latex),
    "csv": ("CSV with all numbers", to_csv),
}


def compare(arguments: list[str]) -> None:
    """`precis compare RUN RUN ...`: a table of systems (runs that differ in their seed alone are one), and a page.

    A RUN is a run folder with predictions, a sweep folder for all of its runs, or a file that `precis baseline` wrote.
    """
    parser = ArgumentParser(prog="precis compare", description=compare.__doc__, exit_on_error=False)
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, sweep folders, files of predictions")
    parser.add_argument("--baseline", type=Path | None, default=None, help="the run (or system) to compare to")
    parser.add_argument(
        "--split", type=Literal["test", "val", "predict"] | None, default=None,
        help="split of the predictions; by default the first of these that all runs have",
    )  # fmt: skip
    parser.add_argument("--metric", type=str | None, default=None, help=f"{','.join(DEFAULT)} by default")
    parser.add_argument(
        "--language", type=str | None, default=None, help="ISO code of the language in which to compute ROUGE again"
    )
    parser.add_argument("--html", type=Path | None, default=None, help="write a self-contained page")
    for name, (what, _) in TABLES.items():
        parser.add_argument(f"--{name}", type=Path | None, default=None, help=f"write the table as {what}")
    parser.add_argument("--documents", type=PositiveInt, default=1000, help="maximum number of documents in the page")
    parser.add_argument(
        "--sources", type=bool, default=True, help="show source texts in the page, from the corpus of a run"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options = parser.parse_args(arguments)
    _check_outputs(options)
    comparison = compare_runs(options.runs, options.baseline, options.metric, options.split, options.language)
    notes = how_computed(comparison)
    if options.html:
        sources, missing = _source_texts(comparison) if options.sources else ({}, None)
        write_page(options.html, comparison, notes, options.documents, sources)
        if missing:  # after the page, so that an error is the only line
            print(missing, file=sys.stderr)
    table = group_table(comparison)
    for name, (_, to_text) in TABLES.items():
        if path := options[name]:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, to_text(table, notes))
    if options.json:
        print(json.dumps(as_json(comparison), ensure_ascii=False, indent=1))
    else:
        show(comparison, notes, Console())
        page = ["precis", "compare", *map(str, options.runs), "--html", "page.html"]
        print(f"next: open {options.html} in a browser" if options.html else f"next: {shlex.join(page)}")


def _check_outputs(options: Namespace) -> None:
    """Check that the files that are asked for can be written, before minutes of computation."""
    for name in ("html", *TABLES):
        if (path := options[name]) is None:
            continue
        existing = next(parent for parent in path.absolute().parents if parent.exists())
        if not os.access(existing, os.W_OK):
            raise UserError(f"{path}: cannot be written there; choose another path with --{name}")


def compare_runs(
    paths: Sequence[Path],
    baseline: Path | None = None,
    metrics: str | None = None,
    split: str | None = None,
    language: str | None = None,
) -> Comparison:
    """Return the comparison of systems, which are read from their folders or files.

    Args:
        paths: run folders, sweep folders, files of predictions.
        baseline: a run, or the name of a system; by default the first system.
        metrics: comma-separated measures; by default those of `DEFAULT`.
        split: `test`, `val` or `predict`; by default the first that all runs have.
        language: code of the language in which ROUGE is computed again; by default, recorded scores are compared.

    Raises:
        UserError: if the runs cannot be compared.
    """
    runs = read_all(paths, split, language or "en")
    if language is not None:
        for run in runs:
            rescore(run, language)
    systems = systems_of(runs)
    index = choose_baseline(systems, baseline)
    return compare_systems(systems, choose_measures(systems, metrics), index)


def _source_texts(comparison: Comparison) -> tuple[dict[str, str], str | None]:
    """Return texts by id from the corpus of the first run that still has it, and a line on those not read."""
    runs = [run for system in comparison.systems for run in system.runs if run.config]
    if not runs:
        return {}, None
    from datamodules.corpora.corpus import as_document  # these import torch and Lightning
    from precis.runs.run_folder import run_documents

    run, split = runs[0], SPLITS.get(comparison.split or "test", comparison.split or "test")
    folder = run.path if run.path.is_dir() else run.path.parent
    ids = {str(row["id"]) for row in run.rows}
    try:
        texts = {row["id"]: as_document(row).text for row in run_documents(folder, split) if row["id"] in ids}
    except (UserError, ArgumentError, ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        return {}, f"{folder}: its documents are not shown in the page ({reason})"
    if len(texts) == len(ids):
        return texts, None
    missing = f"{len(ids) - len(texts)} of {len(ids)} documents are not in the {split} split of its corpus"
    return texts, f"{folder}: {missing}; the page shows them without their text"


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON."""
    systems = []
    for system, row in zip(comparison.systems, comparison.cells):
        runs = [{"path": str(run.path), "seed": run.seed} for run in system.runs]
        scores = {name: asdict(cell) for name, cell in zip(comparison.measures, row)}
        systems.append({"name": system.name, "runs": runs, "scores": scores})
    return {
        "documents": comparison.documents,
        "split": comparison.split,
        "baseline": comparison.systems[comparison.baseline].name,
        "systems": systems,
        "differences": config_differences(comparison.systems),
        "notes": comparison.notes,
    }


def show(comparison: Comparison, notes: list[str], console: Console) -> None:
    """Print a block of lines for each system, a line for each measure, in columns that all blocks share."""
    headers = ["", "mean", "95 % interval", "difference", "p"]
    blocks = [
        [[name, *cell_columns(cell)] for name, cell in zip(comparison.measures, cells)] for cells in comparison.cells
    ]
    widths = [max(map(len, column)) for column in zip(headers, *chain(*blocks))]
    for index, (system, block) in enumerate(zip(comparison.systems, blocks)):
        about = counted(len(system.runs), "seed") + ", baseline" * (index == comparison.baseline)
        console.print(Text(f"{one_line(system.name)} ({about})", style="bold"), soft_wrap=True)
        for name, *numbers in [headers, *block]:
            columns = [name.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])]
            console.print(Text(" ".join(columns).rstrip(), style="" if name else "dim"), soft_wrap=True)
        console.print()
    for line in notes:
        console.print(Text(line))
