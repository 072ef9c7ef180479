"""Pictures of workspaces, drawn from offline records: what W&B will show, without an account."""

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path

import matplotlib.image
import numpy as np
from matplotlib.axes import Axes

from datamodules.documents import UserError
from precis.dashboards.contents import PAPERS, TRAINING, Dashboard
from precis.dashboards.offline import OfflineRun
from precis.files.figures import new_figure

_COLUMNS = 4
_ROWS_OF_TABLE, _CHARACTERS = 3, 70


def draw_workspaces(runs: Sequence[OfflineRun], out: Path) -> list[Path]:
    """Draw the workspace of each paper that has runs, and return the files.

    Args:
        runs: runs of any papers.
        out: folder of the pictures, PAPER.png.

    Raises:
        UserError: if no run belongs to a paper with a dashboard.
    """
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for dashboard in PAPERS:
        chosen = [run for run in runs if dashboard.paper in run.tags]
        if chosen:
            paths.append(out / f"{dashboard.paper}.png")
            draw_workspace(dashboard, chosen, paths[-1])
    if not paths:
        papers = ", ".join(dashboard.paper for dashboard in PAPERS)
        raise UserError(f"{runs[0].path}: its tags {runs[0].tags} name no paper with a dashboard; there are {papers}")
    return paths


def draw_workspace(dashboard: Dashboard, runs: Sequence[OfflineRun], path: Path) -> None:
    """Draw all panels of a workspace; curves and bars are means over the runs of a job type.

    Panels without a value are drawn, too, and say so.
    """
    lines = [*dashboard.scores, *dashboard.losses, *dashboard.more, *TRAINING]
    panels = [(key, _draw_bars) for key in dashboard.tested] + [(key, _draw_lines) for key in lines]
    rows = -(-len(panels) // _COLUMNS)
    heights = [2.0] * rows + [3.2] * bool(dashboard.heat_maps) + [1.9] * len(dashboard.tables)
    figure = new_figure(14, sum(heights) + 0.6)
    grid = figure.add_gridspec(len(heights), _COLUMNS, height_ratios=heights)
    for number, (key, draw) in enumerate(panels):
        axes = figure.add_subplot(grid[number // _COLUMNS, number % _COLUMNS])
        axes.set_title(key, fontsize=9)
        axes.tick_params(labelsize=7)
        if not draw(axes, key, runs):
            axes.text(0.5, 0.5, "no value", ha="center", va="center", transform=axes.transAxes, color="grey")
    width = _COLUMNS // max(1, len(dashboard.heat_maps))
    for number, key in enumerate(dashboard.heat_maps):
        _draw_image(figure.add_subplot(grid[rows, number * width : (number + 1) * width]), key, runs)
    for number, key in enumerate(dashboard.tables):
        _draw_table(figure.add_subplot(grid[len(heights) - len(dashboard.tables) + number, :]), key, runs)
    colours = _colours(runs)
    handles = [figure.axes[0].plot([], [], color=colour, label=name)[0] for name, colour in colours.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), title=dashboard.title)
    figure.savefig(path, dpi=80)


def _colours(runs: Sequence[OfflineRun]) -> dict[str, str]:
    return {name: f"C{number % 10}" for number, name in enumerate(dict.fromkeys(run.job_type for run in runs))}


def _draw_lines(axes: Axes, key: str, runs: Sequence[OfflineRun]) -> bool:
    """Draw the mean over the runs of a job type at each step; return whether there is any value."""
    drawn = False
    for name, colour in _colours(runs).items():
        by_step: dict[int, list[float]] = {}
        for run in runs:
            for step, value in run.values.get(key, ()) if run.job_type == name else ():
                by_step.setdefault(step, []).append(value)
        steps = sorted(by_step)
        axes.plot(steps, [np.mean(by_step[step]) for step in steps], color=colour, marker="." if len(steps) < 9 else "")
        drawn = drawn or bool(steps)
    return drawn


def _draw_bars(axes: Axes, key: str, runs: Sequence[OfflineRun]) -> bool:
    """Draw the mean of the last values of the runs of a job type, and a point for each run."""
    colours = _colours(runs)
    drawn = False
    for place, (name, colour) in enumerate(colours.items()):
        values = [run.values[key][-1][1] for run in runs if run.job_type == name and key in run.values]
        if values:
            axes.barh(place, np.mean(values), color=colour, alpha=0.6)
            axes.plot(values, [place] * len(values), "k.", markersize=3)
            drawn = True
    axes.set_yticks(range(len(colours)), colours, fontsize=7, parse_math=False)
    axes.invert_yaxis()
    return drawn


def _draw_image(axes: Axes, key: str, runs: Sequence[OfflineRun]) -> None:
    axes.axis("off")
    run = next((run for run in reversed(runs) if key in run.media), None)
    axes.set_title(key if run is None else f"{key} of {run.path.name}", fontsize=9, parse_math=False)
    if run is not None:
        axes.imshow(matplotlib.image.imread(run.media[key][-1]))


def _draw_table(axes: Axes, key: str, runs: Sequence[OfflineRun]) -> None:
    """Draw the first rows of a table, with texts shortened."""
    axes.axis("off")
    run = next((run for run in reversed(runs) if key in run.media), None)
    axes.set_title(key if run is None else f"{key} of {run.path.name}", fontsize=9, parse_math=False)
    if run is None:
        return
    content = json.loads(run.media[key][-1].read_text(encoding="utf-8"))
    columns = content["columns"][:6]
    rows = [[_short(value) for value in row[:6]] for row in content["data"][:_ROWS_OF_TABLE]]
    widths = [0.36 if name in ("reference", "summary") else 0.07 for name in columns]
    table = axes.table(rows, colLabels=columns, colWidths=widths, cellLoc="left", loc="center")
    table.auto_set_font_size(False)
    table.set_fontsize(7)
    for cell in table.get_celld().values():
        cell.get_text().set_parse_math(False)
        cell.set_height(0.2)


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    return textwrap.shorten(str(value), _CHARACTERS, placeholder=" ...")
