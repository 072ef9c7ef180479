"""Table and plot of the controls."""

import statistics
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from matplotlib import rc_context
from matplotlib.figure import Figure

from precis.files.figures import new_figure


class Result(NamedTuple):
    """Scores of one training.

    Attributes:
        control: name of the control.
        arm: name of the arm.
        seed: seed of the training.
        measures: scores by name.
    """

    control: str
    arm: str
    seed: int
    measures: dict[str, float]


class Measure(NamedTuple):
    """Main measure of a control.

    Attributes:
        key: its key in `Result.measures`.
        title: title of its column in the table, and of its plot.
    """

    key: str
    title: str


MEASURES = {
    "rst_extraction": Measure("accuracy", "RSTformer, extraction: right, %"),
    "rstformer": Measure("test/rouge1", "RSTformer, generation: ROUGE-1"),
    "graphsum": Measure("test/rouge1", "GraphSum: right, %"),
    "agents": Measure("test/rouge1", "Agents: right, %"),
    "pointer": Measure("test/rouge1", "Copying: right, %"),
    "coverage": Measure("test/rouge2", "Coverage: ROUGE-2"),
    "self_critical": Measure("test/rougeL", "Self-critical training: ROUGE-L"),
    "pegasus": Measure("test/rouge1", "PEGASUS: ROUGE-1"),
    "selection": Measure("rouge2", "Selection: ROUGE-2"),
}


def values_by_arm(results: Sequence[Result], control: str) -> dict[str, list[float]]:
    """Return the measure of each seed for the arms of a control, in the order of the results."""
    rows = [result for result in results if result.control == control]
    arms: dict[str, list[float]] = {row.arm: [] for row in rows}
    for row in sorted(rows, key=lambda row: row.seed):
        arms[row.arm].append(row.measures[MEASURES[control].key])
    return arms


def table(results: Sequence[Result]) -> str:
    """Return a Markdown page with one table of all controls: mean, range and the value of each seed."""
    lines = ["# All controls", "", "Written by `make controls`; [controls.md](controls.md) says what each arm is.", ""]
    lines += ["| control | arm | mean | range | seeds |", "|---|---|--:|---|---|"]
    for control, measure in MEASURES.items():
        for arm, values in values_by_arm(results, control).items():
            seeds = ", ".join(f"{value:.1f}" for value in values)
            span = f"{min(values):.1f} to {max(values):.1f}"
            lines.append(f"| {measure.title} | {arm} | {statistics.mean(values):.1f} | {span} | {seeds} |")
    return "\n".join(lines) + "\n"


def draw(results: Sequence[Result], path: Path) -> None:
    """Write a plot with one panel for each control: a dot for each seed, a bar at each arm's mean."""
    sizes = {control: len(arms) + 2 for control in MEASURES if (arms := values_by_arm(results, control))}
    filled = list(accumulate(sizes.values()))
    first = sum(2 * rows <= filled[-1] + 4 for rows in filled)  # panels of the left column: about half of all arms
    columns = [list(sizes)[: max(1, first)], list(sizes)[max(1, first) :]]
    figure = new_figure(12, 14)
    for half, names in zip(figure.subfigures(1, 2), columns):
        if not names:
            continue
        arms = [values_by_arm(results, name) for name in names]
        axes = half.subplots(len(names), 1, squeeze=False, height_ratios=[len(values) + 2 for values in arms])
        for axis, name, values in zip(axes[:, 0], names, arms):
            for row, of_seeds in enumerate(values.values()):
                axis.barh(row, statistics.mean(of_seeds), color="#c6d4e8", height=0.7)
                axis.plot(of_seeds, [row] * len(of_seeds), "o", color="#1f4e8c", markersize=3)
            axis.set_yticks(range(len(values)), list(values), fontsize=7)
            axis.tick_params(axis="x", labelsize=7)
            axis.set_title(MEASURES[name].title, fontsize=9, loc="left")
            axis.set_xlim(0, 103)
            axis.invert_yaxis()
    save_figure(figure, path)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as SVG or PNG, the same bytes each time."""
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "precis"}):  # text as text: a third of the size
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
