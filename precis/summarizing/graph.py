"""Implementation of `precis graph`: graphs over the paragraphs of documents, and attention of summaries."""

from contextlib import suppress
from typing import Any

from jsonargparse import Namespace
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
from precis.files.texts import collect_texts, documents_of
from precis.runs.prediction_files import MissingPredictions, find_predictions, read_rows
from precis.runs.run_folder import load_run
from precis.summarizing.graph_drawing import GraphPicture, page, strongest_links


def draw_graphs(options: Namespace) -> None:
    """Print and draw the graphs of texts, or of the documents of a run.

    Args:
        options: options of `precis graph`, with its paragraph rule and graph built.
    """
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
    """Return documents of a split of a run, with summaries if there are any.

    Raises:
        UserError: if the run has no graph, or no prediction of a requested document.
    """
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
    note = f"graph {graph.name}: {len(paragraphs)} of {paragraphs.total} paragraphs"
    return GraphPicture(
        id=paragraphs.id,
        graph=graph.name,
        weights=graph(paragraphs),
        texts=paragraphs.texts,
        summary=row.get("summary", []),
        attention=row.get("paragraph_attention"),
        references=paragraphs.document.references,
        note=note,
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
