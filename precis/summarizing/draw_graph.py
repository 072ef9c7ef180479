"""A page of the graphs over the paragraphs of several documents."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from precis.files.figures import html_page
from precis.files.templates import template
from precis.summarizing.graph_drawing import LINKS, MIN_ATTENTION, MIN_LINK, checked_drawing, draw_svg


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
