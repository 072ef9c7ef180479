"""Graphs over paragraphs, drawn: a network and heat maps as PNG, a page of several documents as HTML."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from datamodules.graphs.drawing import LINK_COLOR, LINKS, MIN_ATTENTION, checked_drawing, draw_svg, strongest
from datamodules.text.lines import counted, one_line, shorten
from precis.files.figures import heat_map, html_page, new_figure

_LETTERS = 58  # maximal length of a text next to a heat map


@dataclass
class Drawn:
    """Data of the picture of a document.

    Attributes:
        id: id of the document.
        graph: name of the graph.
        weights: G, [L, L].
        texts: sentences of each of the L paragraphs.
        summary: sentences of the summary; empty without a model.
        attention: attention of each sentence to each paragraph, [sentences, L], or None.
        references: references, each a list of sentences.
        note: line below the title.
    """

    id: str
    graph: str
    weights: NDArray
    texts: list[list[str]]
    summary: list[str] = field(default_factory=list)
    attention: NDArray | None = None
    references: list[list[str]] = field(default_factory=list)
    note: str = ""

    def __post_init__(self) -> None:
        self.attention = checked_drawing(self.weights, self.texts, self.summary, self.attention)


def figure(drawn: Drawn) -> Figure:
    """Return a figure of the network of paragraphs, the heat map of its weights, and the attention of the summary.

    Nodes are on a circle in the order of the text, numbered from 1; their size is the attention of the whole summary.
    Lines are the strongest links of each paragraph, as in `draw_svg`.

    Raises:
        UserError: if sizes do not match.
    """
    has_attention = drawn.attention is not None and len(drawn.summary) > 0
    attention_height = 1.2 + 0.3 * len(drawn.summary) if has_attention else 0.0
    whole_figure = new_figure(13, 6.2 + attention_height)
    parts = whole_figure.subfigures(2, 1, height_ratios=[6.2, attention_height]) if has_attention else [whole_figure]
    network, table = parts[0].subplots(1, 2)
    _network(network, drawn)
    labels = ("attended paragraph", "attending paragraph")
    image = heat_map(table, drawn.weights, vmin=0, vmax=_ceiling(drawn.weights), cmap="Blues")
    table.set(title="G (its diagonal is 1)", xlabel=labels[0], ylabel=labels[1])
    parts[0].colorbar(image, ax=table, label="weight", shrink=0.8)
    if has_attention:
        axes = parts[1].subplots()
        largest = float(drawn.attention.max())
        image = heat_map(axes, drawn.attention, vmin=0, vmax=largest, cmap="Oranges", aspect="auto")
        names = [shorten(one_line(sentence), _LETTERS) for sentence in drawn.summary]
        axes.set_yticks(range(1, len(names) + 1), names, parse_math=False)
        axes.set(xlabel="paragraph", title="attention of the summary's sentences")
        parts[1].colorbar(image, ax=axes)
    title = f"{one_line(drawn.id)}: graph {drawn.graph}, {counted(len(drawn.texts), 'paragraph')}"
    whole_figure.suptitle(title, parse_math=False)  # an id may contain "$", which would start a formula
    return whole_figure


def _ceiling(weights: NDArray) -> float:
    """Return the largest off-diagonal weight, as the upper end of the scale."""
    off_diagonal = np.asarray(weights)[~np.eye(len(weights), dtype=bool)]
    return float(off_diagonal.max()) if off_diagonal.size and off_diagonal.max() > 0 else 1.0


def _network(axes: Axes, drawn: Drawn) -> None:
    size = len(drawn.texts)
    angle = np.pi / 2 - 2 * np.pi * np.arange(size) / size  # the first on top, then as a clock goes
    x, y = np.cos(angle), np.sin(angle)
    strength = np.maximum(drawn.weights, drawn.weights.T)
    pairs = strongest(drawn.weights)
    largest = max((strength[pair] for pair in pairs), default=1.0)
    for i, j in sorted(pairs, key=lambda pair: strength[pair]):
        share = strength[i, j] / largest
        axes.plot(
            x[[i, j]], y[[i, j]], color=LINK_COLOR, linewidth=0.4 + 4 * share, alpha=0.15 + 0.75 * share, zorder=1
        )
    received = None if drawn.attention is None or not len(drawn.attention) else drawn.attention.mean(0)
    share = np.full(size, 0.2) if received is None else received / max(received.max(), 1e-9)
    color = "0.9" if received is None else "#f0bd9c"
    axes.scatter(x, y, s=150 + 800 * share, color=color, edgecolors="0.2", zorder=2)
    for paragraph in range(size):
        axes.text(x[paragraph], y[paragraph], str(paragraph + 1), ha="center", va="center", fontsize=9, zorder=3)
    axes.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal")
    axes.set_title(f"the {LINKS} strongest links of each paragraph (thickest: {largest:.2f})")
    axes.axis("off")


def page(documents: Sequence[Drawn], title: str = "Paragraph graphs") -> str:
    """Return a self-contained HTML page: every document with its picture, texts and weights.

    Raises:
        UserError: if sizes do not match.
    """
    return html_page(title, "\n".join(map(section, documents)))


def section(drawn: Drawn) -> str:
    """Return the section of a document in the page."""
    svg = draw_svg(drawn.weights, drawn.texts, drawn.summary, drawn.attention)
    rows = []
    for paragraph, text in enumerate(drawn.texts):
        linked = [j for j in np.argsort(-drawn.weights[paragraph], kind="stable").tolist() if j != paragraph][:LINKS]
        links = ", ".join(f"{j + 1} ({drawn.weights[paragraph, j]:.2f})" for j in linked)
        cells = (str(paragraph + 1), escape(one_line(" ".join(text))), links)
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    parts = [f"<h2>{escape(one_line(drawn.id))}</h2>", f'<p class="small">{escape(drawn.note)}</p>', svg]
    parts += [f"<p><b>Reference</b> {escape(one_line(' '.join(text)))}</p>" for text in drawn.references]
    parts += _summary_lines(drawn)
    head = "<tr><td></td><td>paragraph</td><td>strongest links to</td></tr>"
    parts.append(f"<details><summary>paragraphs</summary><table>{head}{''.join(rows)}</table></details>")
    return f"<section>{''.join(parts)}</section>"


def _summary_lines(drawn: Drawn) -> list[str]:
    lines = []
    for number, sentence in enumerate(drawn.summary):
        attended = ""
        if drawn.attention is not None:
            row = drawn.attention[number]
            paragraphs = [j for j in np.argsort(-row, kind="stable").tolist() if row[j] >= MIN_ATTENTION][:LINKS]
            attended = ", ".join(f"{j + 1} ({row[j]:.2f})" for j in paragraphs)
        lines.append(f'<p><b>Summary</b> {escape(one_line(sentence))} <span class="small">{attended}</span></p>')
    return lines
