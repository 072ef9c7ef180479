"""Implementation of `precis graph`: paragraph graphs as tables, as SVG with attention of summaries, and as a page."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jsonargparse import Namespace
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from datamodules.cache_folder import default_cache
from datamodules.corpora.corpus import as_document
from datamodules.corpora.texts import Texts
from datamodules.documents import UserError
from datamodules.graphs import ParagraphGraph, Paragraphs, make_graph
from datamodules.text.lines import one_line, shorten
from precis.config.parsers import load_parser
from precis.files.figures import html_page
from precis.files.templates import template
from precis.files.texts import collect_texts, documents_of
from precis.runs.prediction_files import MissingPredictions, find_predictions, read_rows
from precis.runs.run_folder import load_run

ROW, TOP = 26, 64  # height of a row, and space above the first, in pixels
ARCS, LETTER, GAP = 150, 6.3, 170  # width of the arcs, of a letter of 12 pixels, and of the gap between the columns
LETTERS_ALONE, LETTERS_BESIDE_SUMMARY = 155, 66  # of a displayed text; they fit a page 1,200 pixels wide
LEGEND_LETTER = 6.2  # width of a letter of 11 pixels
LINK_COLOR = "#1b4f8a"
LINKS, ATTENTION_LINES = 3, 5  # maximal number of links of a paragraph, and of attention lines of a summary sentence
MIN_LINK, MIN_ATTENTION = 0.02, 0.05  # smallest weights to draw
Curve = tuple[str, str, float, float, str]  # class, path, width, opacity and tooltip


def strongest(weights: NDArray, max_links: int = LINKS, min_weight: float = MIN_LINK) -> list[tuple[int, int]]:
    """Return the links of G [L, L] to draw, the strongest of each paragraph in either direction, as pairs i < j."""
    strength = np.maximum(weights, weights.T).astype(float)
    np.fill_diagonal(strength, -1)
    pairs = set()
    for i, row in enumerate(strength):
        for j in np.argsort(-row, kind="stable")[:max_links].tolist():
            if row[j] >= min_weight:
                pairs.add((min(i, j), max(i, j)))
    return sorted(pairs)


def draw_svg(
    weights: NDArray, texts: Sequence[Sequence[str]], summary: Sequence[str] = (), attention: NDArray | None = None
) -> str:
    """Draw a graph as a standalone SVG image: one row per paragraph, links as arcs on the left, summary on the right.

    The width and opacity of an arc show its weight (the larger of both directions) relative to the largest one; the
    width of a line between a paragraph and a summary sentence shows the attention. Tooltips show whole texts and
    weights.

    Args:
        weights: G [L, L].
        texts: sentences of each of the L paragraphs.
        summary: sentences of the summary; empty to draw only the graph.
        attention: attention of each summary sentence to each paragraph, [sentences, L].
    """
    letters = LETTERS_BESIDE_SUMMARY if summary else LETTERS_ALONE
    lines = [one_line(" ".join(text)) or "(no words)" for text in texts]
    left = ARCS + 24
    width_of_texts = LETTER * (letters + 4)
    right = left + width_of_texts + GAP
    height = TOP + ROW * max(len(texts), len(summary)) + 10
    step = (height - TOP - 10) / max(1, len(summary))  # the sentences share the height
    curves, texts_at = _arcs(np.asarray(weights, dtype=float), left - 8), []
    legend = [f"arcs: the {LINKS} strongest links of each paragraph"]
    if not curves:
        legend = [f"no links: the graph gives no two paragraphs a weight of at least {MIN_LINK:g}"]
    if attention is not None:
        curves += _attention_lines(np.asarray(attention, dtype=float), left + width_of_texts, right - 8, step)
    for row, line in enumerate(lines):
        texts_at.append((left, TOP + ROW * (row + 0.5), f"{row + 1}  {shorten(line, letters)}", line))
    for row, sentence in enumerate(map(one_line, summary)):
        texts_at.append((right, TOP + step * (row + 0.5), shorten(sentence, letters), sentence))
    heads = [(left, "paragraphs"), (right, "summary")][: 2 if summary else 1]
    width = right + LETTER * letters + 20 if summary else left + width_of_texts
    if attention is not None:
        shown = f"the {ATTENTION_LINES} strongest attention weights of a summary sentence"
        legend.append(f"lines: {shown}, at least {MIN_ATTENTION:g}")
    width = max(width, 24 + LEGEND_LETTER * max(map(len, legend)))
    image = template("precis.summarizing", "graph.svg").render(
        width=round(width), height=round(height), legend=legend, heads=heads, curves=curves, texts=texts_at,
        link_color=LINK_COLOR,
    )  # fmt: skip
    return image + "\n"


def _arcs(weights: NDArray, x: float) -> list[Curve]:
    """Return half ellipses between paragraphs, the strongest on top."""
    pairs = strongest(weights)
    strength = np.maximum(weights, weights.T)
    largest = max((strength[pair] for pair in pairs), default=1.0)
    longest = max((j - i for i, j in pairs), default=1)
    curves = []
    for i, j in sorted(pairs, key=lambda pair: strength[pair]):
        share = strength[i, j] / largest
        y, below = TOP + ROW * (i + 0.5), TOP + ROW * (j + 0.5)
        depth = ARCS * (0.15 + 0.85 * ((j - i) / longest) ** 0.5)
        tooltip = f"{i + 1} to {j + 1}: {weights[i, j]:.2f}, back: {weights[j, i]:.2f}"
        path = f"M{x} {y}A{depth:.1f} {(below - y) / 2:.1f} 0 0 0 {x} {below}"
        curves.append(("link", path, 0.5 + 4 * share, 0.15 + 0.75 * share, tooltip))
    return curves


def _attention_lines(attention: NDArray, x: float, right: float, step: float) -> list[Curve]:
    """Return lines between summary sentences and the paragraphs with the most attention."""
    curves, middle = [], (x + right) / 2
    for s, row in enumerate(attention):
        for paragraph in np.argsort(-row, kind="stable")[:ATTENTION_LINES].tolist():
            if row[paragraph] < MIN_ATTENTION:
                break
            y, end = TOP + ROW * (paragraph + 0.5), TOP + step * (s + 0.5)
            path = f"M{x:.1f} {y}C{middle:.1f} {y} {middle:.1f} {end:.1f} {right:.1f} {end:.1f}"
            weight, tooltip = row[paragraph], f"sentence {s + 1} to paragraph {paragraph + 1}: {row[paragraph]:.2f}"
            curves.append(("look", path, 9 * weight, 0.25 + 0.6 * weight, tooltip))
    return curves


@dataclass
class GraphPicture:
    """Data of the picture of a document; a `UserError` if the attention is that of other paragraphs."""

    id: str
    graph: str  # its name
    weights: NDArray  # G, [L, L]
    texts: list[list[str]]  # sentences of each of the L paragraphs
    summary: list[str] = field(default_factory=list)  # sentences; empty without a model
    attention: NDArray | None = None  # of each sentence of the summary to each paragraph, [sentences, L]
    references: list[list[str]] = field(default_factory=list)  # each a list of sentences
    note: str = ""  # line below the title

    def __post_init__(self) -> None:
        if self.attention is not None:
            self.attention, sizes = np.asarray(self.attention, dtype=float), (len(self.summary), len(self.texts))
            if self.attention.shape != sizes:
                problem = f"attention {self.attention.shape} of summary sentences to paragraphs, which are {sizes}"
                raise UserError(f"{self.id}: {problem}; it was computed with other settings")


def page(pictures: Sequence[GraphPicture]) -> str:
    """Return a self-contained HTML page: every document with its picture, texts and weights."""
    parts = []
    for picture in pictures:
        svg = draw_svg(picture.weights, picture.texts, picture.summary, picture.attention)
        rows = [] if picture.attention is None else picture.attention
        attended = [_largest(row, MIN_ATTENTION) for row in rows] or [""] * len(picture.summary)
        parts.append((picture, svg, strongest_links(picture.weights), attended))
    return html_page("Paragraph graphs", template("precis.summarizing", "pages.html").module.graphs(parts))


def strongest_links(weights: NDArray) -> list[str]:
    """Return the paragraphs that each paragraph is linked to most, numbered from 1, with weights."""
    others = np.where(np.eye(len(weights), dtype=bool), 0, weights)
    return [_largest(row, MIN_LINK) for row in others]


def _largest(row: NDArray, least: float) -> str:
    """Return the numbers, from 1, of the largest weights that are at least `least`."""
    order = np.argsort(-np.asarray(row), kind="stable").tolist()
    return ", ".join(f"{j + 1} ({row[j]:.2f})" for j in order[:LINKS] if row[j] >= least)


def draw_graphs(options: Namespace) -> None:
    """Print and draw the graphs of texts, or of the documents of a run, by the options of `precis graph`."""
    documents = _of_run(options) if options.run is not None else _of_texts(options)
    console = Console()
    for drawn in documents:
        console.print(_table(drawn, console.width))
    if options.html:
        options.html.write_text(page(documents), encoding="utf-8")


def _of_texts(options: Namespace) -> list[GraphPicture]:
    """Return the documents in files or on standard input."""
    documents = documents_of(Texts(collect_texts(options.inputs)))
    if options.graph == "topic":
        raise UserError("--graph topic: topics are learned from a corpus; give the --run of a model with that graph")
    parser = load_parser(options.parser) if options.graph == "rst" else None
    parses = options.parses or default_cache() / "parses"
    graph = make_graph(options.graph, parser, parses)
    graph.prepare(documents)
    return [_drawn(options.paragraphs(document), graph) for document in documents]


def _of_run(options: Namespace) -> list[GraphPicture]:
    """Return documents of a split of a run, with summaries if there are any; a `UserError` if it has no graph."""
    folder = options.run
    data = load_run(folder).data
    if not isinstance(getattr(data, "graph", None), ParagraphGraph):
        raise UserError(f"{folder}: its model has no paragraph graph; give a run of GraphSum")
    rows = {}
    with suppress(MissingPredictions):  # the graph is drawn without a summary
        rows = {row["id"]: row for row in read_rows(find_predictions(folder, options.split))}
    table = data.documents(options.split)
    row_of_id = {name: row for row, name in enumerate(table["id"])}
    names = options.id or [name for name in rows if name in row_of_id][: options.documents] or list(row_of_id)[:1]
    missing = [name for name in names if name not in row_of_id]
    if missing:
        raise UserError(f"{folder}: no document {missing[0]!r} in its {options.split} split; pass --split")
    documents = [as_document(table[row_of_id[name]]) for name in names]
    data.graph.prepare(documents)
    return [_drawn(data.paragraphs(document), data.graph, rows.get(document.id)) for document in documents]


def _drawn(paragraphs: Paragraphs, graph: ParagraphGraph, row: dict[str, Any] | None = None) -> GraphPicture:
    row = row or {}
    return GraphPicture(
        id=paragraphs.id,
        graph=graph.name,
        weights=graph(paragraphs),
        texts=paragraphs.texts,
        summary=row.get("summary", []),
        attention=row.get("paragraph_attention"),
        references=paragraphs.document.references,
        note=f"graph {graph.name}: {len(paragraphs)} of {paragraphs.total} paragraphs",
    )


def _table(drawn: GraphPicture, width: int) -> Table:
    """Return a table of paragraphs with their strongest links."""
    title = Text(f"{one_line(drawn.id)}: graph {drawn.graph}")
    table = Table(title=title, caption="numbers of paragraphs, weights in brackets")
    for name in ("", "paragraph", "strongest links to"):
        table.add_column(name, no_wrap=name != "paragraph", justify="right" if not name else "left")
    for number, (text, links) in enumerate(zip(drawn.texts, strongest_links(drawn.weights)), start=1):
        table.add_row(str(number), Text(shorten(one_line(" ".join(text)), max(20, width - 46))), links)
    return table
