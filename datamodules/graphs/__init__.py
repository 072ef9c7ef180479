"""Graphs over the paragraphs of a document."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from datamodules.graphs.discourse import Discourse
from datamodules.graphs.graph import FromFile, Identity, NoGraph, ParagraphGraph, Weights
from datamodules.graphs.paragraphs import ParagraphRule, Paragraphs
from datamodules.graphs.rst import RST
from datamodules.graphs.similarity import PermutedSimilarity, Similarity, Topic

if TYPE_CHECKING:
    from datamodules.parsing import Parser  # imports torch

GraphName = Literal["similarity", "scaled_similarity", "topic", "discourse", "rst", "none"]

__all__ = [
    "RST", "Discourse", "FromFile", "GraphName", "Identity", "NoGraph", "ParagraphGraph", "ParagraphRule", "Paragraphs",
    "PermutedSimilarity", "Similarity", "Topic", "Weights", "make_graph",
]  # fmt: skip

_BY_NAME = {
    "similarity": Similarity, "scaled_similarity": partial(Similarity, scaled=True), "topic": Topic,
    "discourse": Discourse, "none": NoGraph,
}  # fmt: skip


def make_graph(
    graph: GraphName | ParagraphGraph, parser: "Parser | None" = None, parses: Path | None = None
) -> ParagraphGraph:
    """Return the graph of a name, with default settings; a graph object is returned unchanged, with its own settings.

    Raises:
        ValueError: if the name is unknown, or `rst` has no parser or no folder of parses.
    """
    if isinstance(graph, ParagraphGraph):
        return graph
    if graph in _BY_NAME:
        return _BY_NAME[graph]()
    if graph == "rst":  # the only graph that needs the two other arguments
        if parser is None or parses is None:
            raise ValueError("data.graph rst needs a parser and a folder of parses: give data.parser")
        return RST(parser, parses)
    raise ValueError(f"graph {graph!r} is not one of {', '.join(get_args(GraphName))}; choose one")
