"""Tables of `precis compare` for papers and spreadsheets: LaTeX and CSV, grouped by the axes of the sweep."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

import numpy as np

from precis.config.labels import format_value, short_key
from precis.evaluation.compared_systems import MOST_IN_A_NAME, config_differences
from precis.evaluation.comparison import DESCRIPTIVE, Cell, Comparison

_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


@dataclass(frozen=True)
class _Row:
    """A system: its name, its values on the axes (or its name), its number of runs, and a cell per measure."""

    name: str
    labels: list[str]
    seeds: int
    cells: list[Cell]


@dataclass(frozen=True)
class GroupedTable:
    """Systems by their values on the axes: config keys in which they differ, `system` if none or too many."""

    axes: list[str]
    measures: list[str]
    rows: list[_Row]

    def best(self) -> set[tuple[int, int]]:
        """Return the row and column of the highest mean of each measure; descriptive measures have none."""
        columns = [column for column, name in enumerate(self.measures) if name not in DESCRIPTIVE]
        means = np.array([[row.cells[column].mean for column in columns] for row in self.rows])
        return {(int(row), columns[place]) for place, row in enumerate(np.nan_to_num(means, nan=-np.inf).argmax(0))}


def group_table(comparison: Comparison) -> GroupedTable:
    """Return the systems of a comparison, grouped by the config keys in which they differ."""
    systems = comparison.systems
    differing = config_differences(systems)
    # Outputs without a config have no values on the axes, and with many axes the names are easier to read.
    has_axes = 0 < len(differing) <= MOST_IN_A_NAME and not any(system.is_fixed for system in systems)
    axes = [short_key(key, set(differing)) for key in differing] if has_axes else ["system"]
    rows = []
    for index, (system, cells) in enumerate(zip(systems, comparison.cells)):
        labels = [format_value(values[index]) for values in differing.values()] if has_axes else [system.name]
        rows.append(_Row(system.name, labels, len(system.runs), cells))
    # On each axis, labels are sorted by their first appearance.
    orders = [list(dict.fromkeys(column)) for column in zip(*(row.labels for row in rows))]
    rows.sort(key=lambda row: [order.index(label) for order, label in zip(orders, row.labels)])
    return GroupedTable(axes, comparison.measures, rows)


def to_csv(table: GroupedTable, notes: Sequence[str]) -> str:
    """Return a line for each system, with every number of every measure in a column; CSV has no place for notes."""
    keys = [field.name for field in fields(Cell)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    axes = [axis for axis in table.axes if axis != "system"]
    writer.writerow(["system", *axes, "seeds", *(f"{name}_{key}" for name in table.measures for key in keys)])
    for row in table.rows:
        values = [asdict(cell)[key] for cell in row.cells for key in keys]
        writer.writerow([row.name, *(row.labels if axes else []), row.seeds, *values])
    return out.getvalue()


def to_latex(table: GroupedTable, notes: Sequence[str]) -> str:
    """Return a table for the package `booktabs`, with a rule between groups; the notes are comments above it."""
    best = table.best()
    lines = [f"% {note}" for note in notes]
    lines.append(r"\begin{tabular}{" + "l" * len(table.axes) + "r" * (1 + len(table.measures)) + "}")
    names = [*table.axes, "seeds", *table.measures]
    lines += [r"\toprule", " & ".join(map(escape_latex, names)) + r" \\", r"\midrule"]
    before: list[str] = []
    for place, row in enumerate(table.rows):
        if before and len(table.axes) > 1 and row.labels[0] != before[0]:
            lines.append(r"\midrule")
        texts = []
        for column, cell in enumerate(row.cells):
            spread = rf"\pm {cell.spread:.2f}" if cell.spread is not None else ""
            mean = f"${cell.mean:.2f}{spread}$"
            text = rf"\textbf{{{mean}}}" if (place, column) in best else mean
            texts.append(text + ("$^{*}$" if cell.significant else ""))
        labels = _without_repeats(row.labels, before)
        lines.append(" & ".join([*map(escape_latex, labels), str(row.seeds), *texts]) + r" \\")
        before = row.labels
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def escape_latex(text: str) -> str:
    """Return a text in which characters that LaTeX interprets are escaped."""
    return "".join(_ESCAPES.get(character, character) for character in text)


def _without_repeats(labels: Sequence[str], before: Sequence[str]) -> list[str]:
    """Blank the labels of leading axes that repeat those of the row above; the last axis is always kept."""
    shared = 0
    while shared < len(labels) - 1 and before and labels[shared] == before[shared]:
        shared += 1
    return [""] * shared + list(labels[shared:])
