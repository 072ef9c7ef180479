"""Graphs over paragraphs, drawn: a network and heat maps as PNG, a page of several documents as HTML."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from datamodules.text.lines import counted, one_line, shorten
from precis.files.figures import heat_map, html_page, new_figure
from precis.files.templates import template
from precis.summarizing.graph_drawing import (
    LINK_COLOR,
    LINKS,
    MIN_ATTENTION,
    MIN_LINK,
    checked_drawing,
    draw_svg,
    strongest,
)

_LETTERS = 58  # maximum length of a text next to a heat map


@dataclass
class GraphPicture:
    """Data of the picture of a document.

    Raises:
        UserError: if sizes do not match.
    """

    id: str
    graph: str  # its name
    weights: NDArray  # G, [L, L]
    texts: list[list[str]]  # sentences of each of the L paragraphs
    summary: list[str] = field(default_factory=list)  # sentences; empty without a model
    attention: NDArray | None = None  # of each sentence of the summary to each paragraph, [sentences, L]
    references: list[list[str]] = field(default_factory=list)  # each a list of sentences
    note: str = ""  # line below the title

    def __post_init__(self) -> None:
        self.attention = checked_drawing(self.weights, self.texts, self.summary, self.attention)


def figure(drawn: GraphPicture) -> Figure:
    """Return a figure of the network of paragraphs, the heat map of its weights, and the attention of the summary."""
    attention = drawn.attention if drawn.summary else None
    attention_height = 0.0 if attention is None else 1.2 + 0.3 * len(drawn.summary)
    whole_figure = new_figure(13, 6.2 + attention_height)
    parts = whole_figure.subfigures(2, 1, height_ratios=[6.2, attention_height]) if attention_height else [whole_figure]
    network, table = parts[0].subplots(1, 2)
    _draw_network(network, drawn)
    # the diagonal is 1, so that the scale ends at the largest other weight
    off_diagonal = np.asarray(drawn.weights)[~np.eye(len(drawn.weights), dtype=bool)]
    largest = float(off_diagonal.max(initial=0)) or 1.0
    image = heat_map(table, drawn.weights, vmin=0, vmax=largest, cmap="Blues")
    table.set(title="G (its diagonal is 1)", xlabel="attended paragraph", ylabel="attending paragraph")
    parts[0].colorbar(image, ax=table, label="weight", shrink=0.8)
    if attention is not None:
        axes = parts[1].subplots()
        largest = float(attention.max())
        image = heat_map(axes, attention, vmin=0, vmax=largest, cmap="Oranges", aspect="auto")
        names = [shorten(one_line(sentence), _LETTERS) for sentence in drawn.summary]
        axes.set_yticks(range(1, len(names) + 1), names, parse_math=False)
        axes.set(xlabel="paragraph", title="attention of the summary's sentences")
        parts[1].colorbar(image, ax=axes)
    title = f"{one_line(drawn.id)}: graph {drawn.graph}, {counted(len(drawn.texts), 'paragraph')}"
    whole_figure.suptitle(title, parse_math=False)  # an id may contain "$", which would start a formula
    return whole_figure


def _draw_network(axes: Axes, drawn: GraphPicture) -> None:
    """Draw paragraphs on a circle in the order of the text, their size by the attention of the whole summary."""
    size = len(drawn.texts)
    angle = np.pi / 2 - 2 * np.pi * np.arange(size) / size  # the first on top, then clockwise
    x, y = np.cos(angle), np.sin(angle)
    strength = np.maximum(drawn.weights, drawn.weights.T)
    pairs = strongest(drawn.weights)
    largest = max((strength[pair] for pair in pairs), default=1.0)
    for i, j in sorted(pairs, key=lambda pair: strength[pair]):
        share = strength[i, j] / largest
        look = {"linewidth": 0.4 + 4 * share, "alpha": 0.15 + 0.75 * share, "zorder": 1}
        axes.plot(x[[i, j]], y[[i, j]], color=LINK_COLOR, **look)
    received = None if drawn.attention is None or not len(drawn.attention) else drawn.attention.mean(0)
    share = np.full(size, 0.2) if received is None else received / max(received.max(), 1e-9)
    color = "0.9" if received is None else "#f0bd9c"
    axes.scatter(x, y, s=150 + 800 * share, color=color, edgecolors="0.2", zorder=2)
    for paragraph in range(size):
        axes.text(x[paragraph], y[paragraph], str(paragraph + 1), ha="center", va="center", fontsize=9, zorder=3)
    axes.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal")
    axes.set_title(f"the {LINKS} strongest links of each paragraph (thickest: {largest:.2f})")
    axes.axis("off")


def page(documents: Sequence[GraphPicture]) -> str:
    """Return a self-contained HTML page: every document with its picture, texts and weights."""
    parts = []
    for drawn in documents:
        svg = draw_svg(drawn.weights, drawn.texts, drawn.summary, drawn.attention)
        rows = [] if drawn.attention is None else drawn.attention
        attended = [_largest(row, MIN_ATTENTION) for row in rows] or [""] * len(drawn.summary)
        parts.append((drawn, svg, strongest_links(drawn.weights), attended))
    return html_page("Paragraph graphs", template("precis.summarizing", "pages.html").module.graphs(parts))


def strongest_links(weights: NDArray) -> list[str]:
    """Return the paragraphs that each paragraph is linked to most, numbered from 1, with weights."""
    others = np.where(np.eye(len(weights), dtype=bool), 0, weights)
    return [_largest(row, MIN_LINK) for row in others]


def _largest(row: NDArray, least: float) -> str:
    """Return the numbers, from 1, of the largest weights that are at least `least`."""
    order = np.argsort(-np.asarray(row), kind="stable").tolist()
    return ", ".join(f"{j + 1} ({row[j]:.2f})" for j in order[:LINKS] if row[j] >= least)
