"""Graphs over the paragraphs of a document."""

from pathlib import Path
from typing import Any, Literal, get_args

from datamodules.graphs.graph import NoGraph, ParagraphGraph, Weights
from datamodules.graphs.paragraphs import ParagraphRule, Paragraphs

GraphName = Literal["similarity", "topic", "discourse", "rst", "none"]

__all__ = ["GraphName", "NoGraph", "ParagraphGraph", "ParagraphRule", "Paragraphs", "Weights", "make_graph"]


def make_graph(graph: GraphName | ParagraphGraph, parser: Any = None, parses: Path | None = None) -> ParagraphGraph:
    """The graph of that name with its default settings; one that is made already as it is.

    Args:
        graph: a name; or an object, for other settings and for graphs of your own.
        parser: whose parses the graph `rst` is made from.
        parses: folder of parses, for `rst`.

    Raises:
        ValueError: if there is no such graph, or `rst` has no parser.
    """
    if isinstance(graph, ParagraphGraph):
        return graph
    if graph == "none":
        return NoGraph()
    raise ValueError(f"graph {graph!r} is none of {', '.join(get_args(GraphName))}; choose one")
