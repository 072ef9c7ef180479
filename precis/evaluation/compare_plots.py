"""Plots of `precis compare` as SVG and PNG files: scores with intervals, and learning curves."""

import re
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from datamodules.text.lines import one_line
from precis.evaluation.compare_page import curves
from precis.evaluation.comparison import Comparison
from precis.files.figures import new_figure, save_figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#6b4c9a", "#555555")
FORMATS = ("svg", "png")


def write_plots(folder: Path, comparison: Comparison) -> list[Path]:
    """Write a plot of the scores, and one of each value that was logged in validations.

    Args:
        folder: output folder, created if missing.
        comparison: the systems.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    figures = {"scores": draw_scores(comparison)}
    for name, logged in curves(comparison.systems).items():
        if name.startswith("val/") and any(len(curve["points"]) > 1 for curve in logged):
            figure = new_figure(7, 4)
            _draw_curves(figure.add_subplot(), comparison, name, logged)
            figures[f"curve_{re.sub(r'[^A-Za-z0-9]+', '_', name)}"] = figure
    paths = {folder / f"{name}.{suffix}": figure for name, figure in figures.items() for suffix in FORMATS}
    for path, figure in paths.items():
        save_figure(figure, path, dpi=150)
    return list(paths)


def draw_scores(comparison: Comparison) -> Figure:
    """Draw the mean of each system with its 95 % interval, in a panel for each measure."""
    count, systems = len(comparison.measures), comparison.systems
    figure = new_figure(2.6 * count + 2, 0.4 * len(systems) + 1)
    panels = figure.subplots(1, count, sharey=True, squeeze=False)[0]
    for column, (axes, measure) in enumerate(zip(panels, comparison.measures)):
        for place, row in enumerate(comparison.cells):
            cell, colour = row[column], COLOURS[place % len(COLOURS)]
            axes.plot([cell.low, cell.high], [place, place], color=colour)
            axes.plot([cell.mean], [place], "o", color=colour)
        axes.set_title(measure, fontsize=10)
        axes.grid(axis="x", alpha=0.3)
    names = [one_line(system.name) for system in systems]
    panels[0].set_yticks(range(len(systems)), names, parse_math=False)
    panels[0].set_ylim(len(systems) - 0.5, -0.5)
    return figure


def _draw_curves(axes: Axes, comparison: Comparison, name: str, logged: list[dict]) -> None:
    """Draw the curve of each run, in the colour of its system."""
    named: set[int] = set()
    for curve in logged:
        system = curve["system"]
        label = None if system in named else one_line(comparison.systems[system].name).replace("$", r"\$")
        named.add(system)
        steps, values = zip(*curve["points"])
        axes.plot(steps, values, color=COLOURS[system % len(COLOURS)], label=label, linewidth=1.2)
    axes.set(xlabel="step", ylabel=name)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
