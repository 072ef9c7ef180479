"""Plot of effects on real text: `python -m experiments.studies.controls.real_text`.

The effects are those of the table under "Real text" in `experiments/results/mechanisms.md`: differences written as
`ROUGE-1 +3.03 [+2.53, +3.53]` or `NLL 0.0000 nats [-0.0002, +0.0002]`. Rows without an interval are left out.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

from jsonargparse import ArgumentParser
from matplotlib.figure import Figure

from experiments.studies.controls.report import save_figure

PAGE = Path(__file__).parents[2] / "results" / "mechanisms.md"
_DIFFERENCE = re.compile(r"([^|;]*?) ([+-]?\d+\.\d+)(?: nats)? \[([+-]?\d+\.\d+), ([+-]?\d+\.\d+)\]")
# title of a panel, and how the names of its measures start
PANELS = {
    "ROUGE, points; logarithmic beyond 2": "ROUGE",
    "negative log-likelihood, nats per token": "NLL",
    "other measures": "",
}
_LABEL_WIDTH = 75  # characters
_ROUGE_TICKS = (-10, -5, -2, -1, 0, 1, 2, 5, 10, 20)


class Effect(NamedTuple):
    """Difference between a mechanism and what it is compared with.

    Attributes:
        name: mechanism, comparison and corpus.
        measure: name of the measure.
        mean, low, high: difference and its 95 % interval.
        detectable: smallest true difference that the design detects in four of five repetitions.
    """

    name: str
    measure: str
    mean: float
    low: float
    high: float
    detectable: float


def read_effects(page: str) -> list[Effect]:
    """Return the effects of the table under the heading "Real text"."""
    section = page.split("\n## Real text\n", 1)[1].split("\n## ", 1)[0]
    effects = []
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        match = _DIFFERENCE.search(cells[3]) if len(cells) >= 6 else None
        detectable = re.match(r"\d+\.\d+", cells[4]) if match else None
        if match and detectable:
            name = re.sub(r"`", "", f"{cells[0]} against {cells[1]}: {cells[2].split(',')[0]}")
            numbers = map(float, match.groups()[1:])
            effects.append(Effect(name, match[1].strip(), *numbers, float(detectable[0])))
    return effects


def draw(effects: Sequence[Effect], path: Path) -> None:
    """Plot differences with intervals, a panel for each kind of measure; what the design could not detect is grey."""
    groups: dict[str, list[Effect]] = {title: [] for title in PANELS}
    for effect in effects:
        groups[next(title for title, start in PANELS.items() if effect.measure.startswith(start))].append(effect)
    groups = {title: group for title, group in groups.items() if group}
    figure = Figure(figsize=(10, 1.2 + 0.36 * len(effects)), layout="constrained")
    ratios = [len(group) + 1 for group in groups.values()]
    panels = figure.subplots(len(groups), 1, squeeze=False, height_ratios=ratios)[:, 0]
    for axis, (title, group) in zip(panels, groups.items()):
        for row, effect in enumerate(group):
            axis.barh(row, 2 * effect.detectable, left=-effect.detectable, color="#dddddd", height=0.6)
            axis.plot([effect.low, effect.high], [row, row], color="#1f4e8c")
            axis.plot(effect.mean, row, "o", color="#1f4e8c", markersize=4)
        axis.axvline(0, color="black", linewidth=0.8)
        labels = [fill(f"{effect.name}, {effect.measure}", _LABEL_WIDTH) for effect in group]
        axis.set_yticks(range(len(group)), labels, fontsize=7)
        axis.set_ylim(-0.6, len(group) - 0.4)
        if title.startswith("ROUGE"):  # some effects are 20 times as large as others
            axis.set_xscale("symlog", linthresh=2)
            axis.set_xticks(_ROUGE_TICKS, [f"{tick:+d}" if tick else "0" for tick in _ROUGE_TICKS])
        axis.tick_params(axis="x", labelsize=7)
        axis.set_title(title, fontsize=9, loc="left")
        axis.use_sticky_edges = False
        axis.invert_yaxis()
    save_figure(figure, path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the effects on real text that the page of results lists."""
    parser = ArgumentParser(prog="python -m experiments.studies.controls.real_text", description=main.__doc__)
    parser.add_argument("--page", type=str, default=str(PAGE), help="Markdown page with the table")
    parser.add_argument("--plot", type=str, default=str(PAGE.with_name("real_text.svg")), help="file of the plot")
    options = parser.parse_args(arguments)
    draw(read_effects(Path(options.page).read_text(encoding="utf-8")), Path(options.plot))


if __name__ == "__main__":
    main()
