"""`precis compare RUN RUN ...`: runs side by side, from their folders alone, on a terminal, as LaTeX and as CSV."""

import csv
import io
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jsonargparse import ArgumentError, ArgumentParser
from jsonargparse.typing import PositiveInt
from rich.console import Console
from rich.text import Text

from datamodules.atomic_write import atomic_write
from datamodules.documents import UserError
from datamodules.text.lines import counted, one_line
from precis.config.run_config import format_value, short_key
from precis.evaluation import comparison as comparisons
from precis.evaluation.compare_page import write_page
from precis.evaluation.compared_systems import MAX_KEYS_IN_NAME, config_differences, read_all, systems_of
from precis.evaluation.comparison import Cell, Comparison
from precis.files.data_files import check_outputs

LATEX_ESCAPES = str.maketrans({  # for `str.translate`
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
})  # fmt: skip


def compare(arguments: list[str]) -> None:
    """`precis compare RUN RUN ...`: a table of systems (runs that differ in their seed alone are one), and a page.

    A RUN is a run folder with predictions, a sweep folder for all of its runs, or a file that `precis baseline` wrote.
    """
    parser = ArgumentParser(prog="precis compare", description=compare.__doc__, exit_on_error=False)
    add = parser.add_argument
    add("runs", type=Path, nargs="+", help="run folders, sweep folders, files of predictions")
    add("--baseline", type=Path | None, default=None, help="the run (or system) to compare to")
    split_help = "split of the predictions; by default the first of these that all runs have"
    add("--split", type=Literal["test", "val", "predict"] | None, default=None, help=split_help)
    add("--metric", type=str | None, default=None, help=f"{','.join(comparisons.DEFAULT)} by default")
    add("--language", type=str | None, default=None, help="ISO code of the language in which to compute ROUGE again")
    add("--html", type=Path | None, default=None, help="write a self-contained page")
    for name, (file_format, _) in TABLES.items():
        add(f"--{name}", type=Path | None, default=None, help=f"write the table as {file_format}")
    add("--documents", type=PositiveInt, default=1000, help="maximum number of documents in the page")
    add("--sources", type=bool, default=True, help="show source texts in the page, from the corpus of a run")
    add("--json", action="store_true", help="one JSON object instead of a table")
    options = parser.parse_args(arguments)
    check_outputs(**{name: options[name] for name in ("html", *TABLES)})
    comparison = compare_runs(options.runs, options.baseline, options.metric, options.split, options.language)
    notes = comparisons.how_computed(comparison)
    if options.html:
        sources, missing = _source_texts(comparison) if options.sources else ({}, None)
        write_page(options.html, comparison, notes, options.documents, sources)
        if missing:  # printed after the page is written: if that fails, its error is the only message
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
        page += [f"--{name}={options[name]}" for name in ("baseline", "split", "metric", "language") if options[name]]
        print(f"next: open {options.html} in a browser" if options.html else f"next: {shlex.join(page)}")


def compare_runs(
    paths: Sequence[Path], baseline: Path | None, metrics: str | None, split: str | None, language: str | None
) -> Comparison:
    """Return the comparison that `precis compare` prints for its options; a `UserError` if runs cannot be compared."""
    systems = systems_of(read_all(paths, split, language))
    index = comparisons.choose_baseline(systems, baseline)
    return comparisons.compare_systems(systems, comparisons.choose_measures(systems, metrics), index)


def _source_texts(comparison: Comparison) -> tuple[dict[str, str], str | None]:
    """Return the texts of documents by id, from the corpus of a run; and a warning if some are missing, or None."""
    run = next((run for system in comparison.systems for run in system.runs if run.config), None)
    if run is None:  # only files of predictions
        return {}, None
    from datamodules.corpora.corpus import as_document  # these import torch and Lightning
    from precis.runs.run_folder import run_documents

    split = "val" if comparison.split == "val" else "test"  # the predictions called "predict" are of the test split
    folder = run.path if run.path.is_dir() else run.path.parent  # `path` may be a file in the run folder
    ids = {row["id"] for row in run.rows}
    try:
        texts = {row["id"]: as_document(row).text for row in run_documents(folder, split) if row["id"] in ids}
    except (UserError, ArgumentError, ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        return {}, f"{folder}: its documents are not shown in the page ({reason})"  # the page is useful without them
    if len(texts) == len(ids):
        return texts, None
    missing = f"{len(ids) - len(texts)} of {len(ids)} documents are not in the {split} split of its corpus"
    return texts, f"{folder}: {missing}; the page shows them without their text"


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as plain values for `precis compare --json`; `scores`: fields of `Cell` by measure."""
    systems = []
    for system, cells in zip(comparison.systems, comparison.cells):
        runs = [{"path": str(run.path), "seed": run.seed} for run in system.runs]
        scores = {name: asdict(cell) for name, cell in zip(comparison.measures, cells)}
        systems.append({"name": system.name, "runs": runs, "scores": scores})
    return {
        "documents": comparison.documents,  # their number
        "split": comparison.split,
        "baseline": comparison.systems[comparison.baseline].name,
        "systems": systems,
        "differences": config_differences(comparison.systems),  # by config key, the value of each system
        "notes": comparison.notes,
    }


def show(comparison: Comparison, notes: list[str], console: Console) -> None:
    """Print a block for each system, with a line for each measure, in columns of the same width in all blocks."""
    headers = ["", "mean", "95 % interval", "difference", "p"]  # the first column has the names of measures
    blocks = []  # by system, measure and column: the text in the column
    for cells in comparison.cells:
        blocks.append([[name, *comparisons.cell_columns(cell)] for name, cell in zip(comparison.measures, cells)])
    widths = [max(map(len, column)) for column in zip(headers, *chain(*blocks))]  # over the lines of all blocks
    for index, (system, block) in enumerate(zip(comparison.systems, blocks)):
        role = ", baseline" if index == comparison.baseline else ""
        title = f"{one_line(system.name)} ({counted(len(system.runs), 'seed')}{role})"
        console.print(Text(title, style="bold"), soft_wrap=True)  # rich would break lines at the terminal's width
        for name, *numbers in [headers, *block]:  # the headers, whose name is "", are dim
            columns = [name.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])]
            console.print(Text(" ".join(columns).rstrip(), style="" if name else "dim"), soft_wrap=True)
        console.print()
    for note in notes:
        console.print(Text(note))


@dataclass(frozen=True)
class _Row:
    """A system in a `GroupedTable`."""

    name: str
    labels: list[str]  # its value of each config key in `GroupedTable.axes`; the name if the only axis is `system`
    seeds: int  # number of runs
    cells: list[Cell]  # one for each measure


@dataclass(frozen=True)
class GroupedTable:
    """Systems by the config keys in which they differ (`axes`)."""

    axes: list[str]  # short config keys; only `system` if there are none or too many, or a system has no config
    measures: list[str]
    rows: list[_Row]

    def best(self) -> set[tuple[int, int]]:
        """Return (row, column) of the highest mean of each measure; descriptive measures have no best system."""
        columns = [column for column, name in enumerate(self.measures) if not comparisons.DESCRIPTIVE.fullmatch(name)]
        means = np.array([[row.cells[column].mean for column in columns] for row in self.rows])  # [systems, columns]
        best_rows = np.nan_to_num(means, nan=-np.inf).argmax(0)  # [columns]
        return {(int(row), column) for row, column in zip(best_rows, columns)}


def group_table(comparison: Comparison) -> GroupedTable:
    """Return the systems of a comparison as rows, sorted by their values of the config keys in which they differ."""
    systems = comparison.systems
    differing = config_differences(systems)  # values of all systems by config key
    # No axes if a system is a file of outputs (`is_fixed`), which has no config, or if there would be too many to read.
    has_axes = 0 < len(differing) <= MAX_KEYS_IN_NAME and not any(system.is_fixed for system in systems)
    axes = [short_key(key, set(differing)) for key in differing] if has_axes else ["system"]
    rows = []
    for index, (system, cells) in enumerate(zip(systems, comparison.cells)):
        labels = [format_value(values[index]) for values in differing.values()] if has_axes else [system.name]
        rows.append(_Row(system.name, labels, len(system.runs), cells))
    # Rows are sorted by the first axis, then the next, each in the order in which its labels first appear.
    orders = [list(dict.fromkeys(column)) for column in zip(*(row.labels for row in rows))]  # labels of each axis
    rows.sort(key=lambda row: [order.index(label) for order, label in zip(orders, row.labels)])
    return GroupedTable(axes, comparison.measures, rows)


def to_csv(table: GroupedTable, notes: Sequence[str]) -> str:
    """Return CSV with a line for each system and a column for each measure and field of `Cell`; `notes` are unused."""
    keys = [field.name for field in fields(Cell)]  # such as mean, low, high
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    axes = [axis for axis in table.axes if axis != "system"]  # the name of the system is the first column anyway
    writer.writerow(["system", *axes, "seeds", *(f"{name}_{key}" for name in table.measures for key in keys)])
    for row in table.rows:
        values = [asdict(cell)[key] for cell in row.cells for key in keys]
        writer.writerow([row.name, *(row.labels if axes else []), row.seeds, *values])
    return out.getvalue()


def to_latex(table: GroupedTable, notes: Sequence[str]) -> str:
    """Return a LaTeX table (booktabs), with a rule where the first axis changes, and notes as comments above it."""
    best = table.best()  # (row, column) of the highest mean of each measure
    lines = [f"% {note}" for note in notes]
    lines.append(r"\begin{tabular}{" + "l" * len(table.axes) + "r" * (1 + len(table.measures)) + "}")  # 1 for seeds
    headers = [name.translate(LATEX_ESCAPES) for name in (*table.axes, "seeds", *table.measures)]
    lines += [r"\toprule", " & ".join(headers) + r" \\", r"\midrule"]
    above: list[str] = []  # labels of the row above; empty in the first row
    for row_number, row in enumerate(table.rows):
        if above and len(table.axes) > 1 and row.labels[0] != above[0]:
            lines.append(r"\midrule")
        texts = []
        for column, cell in enumerate(row.cells):
            spread = rf"\pm {cell.spread:.2f}" if cell.spread is not None else ""
            mean = f"${cell.mean:.2f}{spread}$"
            text = rf"\textbf{{{mean}}}" if (row_number, column) in best else mean
            texts.append(text + ("$^{*}$" if cell.significant else ""))  # differs significantly from the baseline
        shared = 0  # number of leading labels that equal those above and stay blank; the last label is always printed
        while shared < len(row.labels) - 1 and above and row.labels[shared] == above[shared]:
            shared += 1
        labels = [""] * shared + [label.translate(LATEX_ESCAPES) for label in row.labels[shared:]]
        lines.append(" & ".join([*labels, str(row.seeds), *texts]) + r" \\")
        above = row.labels
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


TABLES = {"latex": ("LaTeX for booktabs", to_latex), "csv": ("CSV with all numbers", to_csv)}
