"""Implementation of `precis graph`: paragraph graphs as tables, as SVG with attention of summaries, and as a page."""

from collections.abc import Mapping, Sequence
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
from datamodules.text.language import language_of
from datamodules.text.lines import isolated, one_line, shorten
from precis.config.parsers import load_parser
from precis.files.figures import html_page
from precis.files.templates import template
from precis.files.texts import collect_texts, documents_of
from precis.runs.prediction_files import existing_predictions, read_rows
from precis.runs.run_folder import load_run

# lengths in pixels
ROW = 26  # height of a row
TOP = 64  # space above the first row
ARCS = 150  # width of the arcs
GAP = 170  # width of the gap between the columns
LETTER = 6.3  # width of a letter of 12 pixels
LEGEND_LETTER = 6.2  # width of a letter of 11 pixels
LETTERS_ALONE = 155  # maximum number of letters of a displayed text, which fit a page 1,200 pixels wide
LETTERS_BESIDE_SUMMARY = 66  # the same of a paragraph beside a summary
LINK_COLOR = "#1b4f8a"
LINKS = 3  # maximum number of links of a paragraph
ATTENTION_LINES = 5  # maximum number of attention lines of a summary sentence
MIN_LINK = 0.02  # smallest weight of a link to draw
MIN_ATTENTION = 0.05  # smallest attention to draw
Curve = tuple[str, str, float, float, str]  # class, path, width, opacity and tooltip


def strongest(weights: NDArray, max_links: int = LINKS, min_weight: float = MIN_LINK) -> list[tuple[int, int]]:
    """Return links to draw, pairs (i, j), i < j: the strongest to or from each of L paragraphs, by weights [L, L]."""
    strength = np.maximum(weights, weights.T).astype(float)  # [L, L], symmetric
    np.fill_diagonal(strength, -1)  # below `min_weight`: no paragraph is linked to itself
    partners = np.argsort(-strength, kind="stable")[:, :max_links].tolist()  # of each paragraph, the strongest first
    pairs = ((i, j) for i, others in enumerate(partners) for j in others if strength[i, j] >= min_weight)
    return sorted({(min(pair), max(pair)) for pair in pairs})


def draw_svg(
    weights: NDArray, texts: Sequence[Sequence[str]], summary: Sequence[str] = (), attention: NDArray | None = None
) -> str:
    """Draw a graph as a standalone SVG image: one row per paragraph, links as arcs on the left, summary on the right.

    Only the strongest links and attention weights are drawn. Width and opacity of an arc show its weight (the larger of
    both directions) relative to the largest one; the width of a line between a paragraph and a summary sentence shows
    the attention. Tooltips show whole texts and weights.

    Args:
        weights: weight of the link from each of the L paragraphs to each other one, [L, L].
        texts: sentences of each of the L paragraphs.
        summary: sentences of the summary; empty to draw only the graph.
        attention: attention of each summary sentence to each paragraph, [sentences, L].
    """
    letters = LETTERS_BESIDE_SUMMARY if summary else LETTERS_ALONE  # maximum letters of a text; longer ones are cut
    left = ARCS + 24  # x of the paragraphs, with a margin; all lengths are in pixels
    width_of_texts = LETTER * (letters + 4)  # LETTER: width of a letter; 4 letters for the paragraph's number
    right = left + width_of_texts + GAP  # x of the summary
    height = TOP + ROW * max(len(texts), len(summary)) + 10  # TOP: above the first row; 10: margin below
    step = (height - TOP - 10) / max(1, len(summary))  # height of a row of the summary, whose sentences fill the column
    curves = _arcs(np.asarray(weights, dtype=float), left - 8)  # 8: margin
    labels = []  # (x, y, text, tooltip)
    legend = [f"arcs: the {LINKS} strongest links of each paragraph"]
    if not curves:
        legend = [f"no links: the graph gives no two paragraphs a weight of at least {MIN_LINK:g}"]
    if attention is not None:
        curves += _attention_lines(np.asarray(attention, dtype=float), left + width_of_texts, right - 8, step)
        strongest_weights = f"the {ATTENTION_LINES} strongest attention weights of a summary sentence"
        legend.append(f"lines: {strongest_weights}, at least {MIN_ATTENTION:g}")
    for index, text in enumerate(texts):
        line = one_line(" ".join(text)) or "(no words)"
        labels.append((left, TOP + ROW * (index + 0.5), f"{index + 1}  {isolated(shorten(line, letters))}", line))
    for index, sentence in enumerate(map(one_line, summary)):
        labels.append((right, TOP + step * (index + 0.5), isolated(shorten(sentence, letters)), sentence))
    headings = [(left, "paragraphs"), (right, "summary")] if summary else [(left, "paragraphs")]
    width = right + LETTER * letters + 20 if summary else left + width_of_texts  # 20: margin
    width = max(width, 24 + LEGEND_LETTER * max(map(len, legend)))  # 24: margins of the legend
    image = template("precis.summarizing", "graph.svg").render(
        width=round(width), height=round(height), legend=legend, heads=headings, curves=curves, texts=labels,
        link_color=LINK_COLOR,
    )  # fmt: skip
    return image + "\n"


def _arcs(weights: NDArray, x: float) -> list[Curve]:
    """Return links to draw, by weights [L, L] of L paragraphs, as half ellipses left of `x`, the strongest on top."""
    pairs = strongest(weights)
    strength = np.maximum(weights, weights.T)  # of the stronger direction, [L, L]
    largest = max((strength[pair] for pair in pairs), default=1.0)
    longest = max((j - i for i, j in pairs), default=1)  # distance of two linked paragraphs
    curves = []
    for i, j in sorted(pairs, key=lambda pair: strength[pair]):
        share = strength[i, j] / largest
        top, bottom = TOP + ROW * (i + 0.5), TOP + ROW * (j + 0.5)
        depth = ARCS * (0.15 + 0.85 * ((j - i) / longest) ** 0.5)  # at most ARCS; ** 0.5: short arcs differ more
        tooltip = f"{i + 1} to {j + 1}: {weights[i, j]:.2f}, back: {weights[j, i]:.2f}"
        path = f"M{x} {top}A{depth:.1f} {(bottom - top) / 2:.1f} 0 0 0 {x} {bottom}"  # SVG: M start A radii, flags, end
        curves.append(("link", path, 0.5 + 4 * share, 0.15 + 0.75 * share, tooltip))  # offsets keep weak links visible
    return curves


def _attention_lines(attention: NDArray, left: float, right: float, step: float) -> list[Curve]:
    """Return lines from L paragraphs at x = `left` to sentences at `right`, `step` apart; attention: [sentences, L]."""
    curves, middle = [], (left + right) / 2
    for sentence, weights in enumerate(attention):
        for paragraph in np.argsort(-weights, kind="stable")[:ATTENTION_LINES].tolist():
            weight = weights[paragraph]
            if weight < MIN_ATTENTION:
                break  # the following weights are smaller
            start, end = TOP + ROW * (paragraph + 0.5), TOP + step * (sentence + 0.5)
            # A Bézier curve that leaves both ends horizontally; stronger weights are wider and less transparent.
            path = f"M{left:.1f} {start}C{middle:.1f} {start} {middle:.1f} {end:.1f} {right:.1f} {end:.1f}"
            tooltip = f"sentence {sentence + 1} to paragraph {paragraph + 1}: {weight:.2f}"
            curves.append(("look", path, 9 * weight, 0.25 + 0.6 * weight, tooltip))  # "look": class in the stylesheet
    return curves


@dataclass
class GraphPicture:
    """Data of a document's picture; a `UserError` if the shape of `attention` does not fit summary and texts."""

    id: str
    graph: str  # name of the kind of graph
    weights: NDArray  # of the link from each of the L paragraphs to each other one, [L, L]
    texts: list[list[str]]  # sentences of each of the L paragraphs
    summary: list[str] = field(default_factory=list)  # sentences; empty without a model
    attention: NDArray | None = None  # of each sentence of the summary to each paragraph, [sentences, L]
    references: list[list[str]] = field(default_factory=list)  # each a list of sentences
    note: str = ""  # line below the title

    def __post_init__(self) -> None:
        """Convert the attention (nested lists if read from a file of predictions) to an array, and check its shape."""
        if self.attention is not None:
            self.attention = np.asarray(self.attention, dtype=float)
            sizes = (len(self.summary), len(self.texts))
            if self.attention.shape != sizes:
                problem = f"attention {self.attention.shape} of summary sentences to paragraphs, which are {sizes}"
                raise UserError(f"{self.id}: {problem}; it was computed with other settings")


def page(pictures: Sequence[GraphPicture]) -> str:
    """Return a self-contained HTML page: every document with its picture, texts and weights."""
    documents = []  # picture, drawing, links and attended paragraphs of each document
    for picture in pictures:
        svg = draw_svg(picture.weights, picture.texts, picture.summary, picture.attention)
        attended = [""] * len(picture.summary)  # for each sentence of the summary, its paragraphs with the most weight
        if picture.attention is not None:
            attended = [_format_largest(weights, MIN_ATTENTION) for weights in picture.attention]
        documents.append((picture, svg, strongest_links(picture.weights), attended))
    return html_page("Paragraph graphs", template("precis.summarizing", "pages.html").module.graphs(documents))


def strongest_links(weights: NDArray) -> list[str]:
    """Return the strongest links of L paragraphs, numbered from 1, as "3 (0.42), 1 (0.07)", by weights [L, L]."""
    others = np.where(np.eye(len(weights), dtype=bool), 0, weights)  # without links to itself
    return [_format_largest(links, MIN_LINK) for links in others]


def _format_largest(weights: NDArray, minimum: float) -> str:
    """Return the `LINKS` largest weights of at least `minimum`, with their numbers from 1, as "3 (0.42), 1 (0.07)"."""
    order = np.argsort(-np.asarray(weights), kind="stable").tolist()
    return ", ".join(f"{j + 1} ({weights[j]:.2f})" for j in order[:LINKS] if weights[j] >= minimum)


def draw_graphs(options: Namespace) -> None:
    """Print and draw the graphs of texts, or of the documents of a run, by the options of `precis graph`."""
    pictures = _run_pictures(options) if options.run is not None else _text_pictures(options)
    console = Console()
    for picture in pictures:
        console.print(_table(picture, console.width))
    if options.html:
        options.html.parent.mkdir(parents=True, exist_ok=True)
        options.html.write_text(page(pictures), encoding="utf-8")


def _text_pictures(options: Namespace) -> list[GraphPicture]:
    """Return the graphs of the texts in files or on standard input, built with the options of `precis graph`."""
    documents = documents_of(Texts(collect_texts(options.inputs)), options.language)
    if options.graph == "topic":
        raise UserError("--graph topic: topics are learned from a corpus; give the --run of a model with that graph")
    parser = load_parser(options.parser) if options.graph == "rst" else None  # of discourse
    parses = options.parses or default_cache() / "parses"  # folder with a parse of each document
    graph = make_graph(options.graph, parser, parses)
    graph.language = language_of(options.language).code
    graph.prepare(documents)  # the graph `rst` parses them
    return [_picture(options.paragraphs(document), graph) for document in documents]  # `paragraphs`: a `ParagraphRule`


def _run_pictures(options: Namespace) -> list[GraphPicture]:
    """Return graphs of the documents `options.id` of a run, by default of the first ones that have predictions."""
    folder = options.run
    data = load_run(folder).data
    if not isinstance(getattr(data, "graph", None), ParagraphGraph):
        raise UserError(f"{folder}: its model has no paragraph graph; give a run of GraphSum")
    path = existing_predictions(folder, options.split)  # without one, graphs are drawn without summaries
    predictions = {record["id"]: record for record in read_rows(path)} if path else {}
    table = data.documents(options.split)
    index_of_id = {name: index for index, name in enumerate(table["id"])}
    ids = options.id or [name for name in predictions if name in index_of_id][: options.documents]
    ids = ids or list(index_of_id)[:1]  # without predictions: the first document of the split
    if missing := [name for name in ids if name not in index_of_id]:
        raise UserError(f"{folder}: no document {missing[0]!r} in its {options.split} split; pass --split")
    documents = [as_document(table[index_of_id[name]]) for name in ids]
    data.graph.prepare(documents)  # computes what the graph needs, such as parses
    return [_picture(data.paragraphs(document), data.graph, predictions.get(document.id, {})) for document in documents]


def _picture(paragraphs: Paragraphs, graph: ParagraphGraph, prediction: Mapping[str, Any] = {}) -> GraphPicture:
    """Return the data of a document's picture; `prediction` is its record in predictions.jsonl, {} for no summary."""
    return GraphPicture(
        id=paragraphs.id, graph=graph.name, weights=graph(paragraphs), texts=paragraphs.texts,
        summary=prediction.get("summary", []), attention=prediction.get("paragraph_attention"),
        references=paragraphs.document.references,
        note=f"graph {graph.name}: {len(paragraphs)} of {paragraphs.total} paragraphs",  # total: before the selection
    )  # fmt: skip


def _table(picture: GraphPicture, width: int) -> Table:
    """Return a table of paragraphs with their strongest links, for a terminal with `width` columns."""
    title = Text(f"{one_line(picture.id)}: graph {picture.graph}")
    table = Table(title=title, caption="numbers of paragraphs, weights in brackets")  # explains the last column
    for name in ("", "paragraph", "strongest links to"):
        table.add_column(name, no_wrap=name != "paragraph", justify="right" if not name else "left")
    for number, (text, links) in enumerate(zip(picture.texts, strongest_links(picture.weights)), start=1):
        letters = max(20, width - 46)  # of a paragraph, at least 20 (lines may wrap); 46: other columns, borders
        table.add_row(str(number), Text(shorten(one_line(" ".join(text)), letters)), links)
    return table
