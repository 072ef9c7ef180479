"""Options of the commands `attention` and `graph`, checked before torch and Lightning are imported."""

from pathlib import Path
from typing import Literal

from jsonargparse import ArgumentParser

from datamodules.documents import UserError
from datamodules.graphs import GraphName, ParagraphGraph, ParagraphRule
from precis.config.parsers import PARSERS
from precis.config.run_config import read_config
from precis.files.data_files import check_outputs
from precis.files.texts import collect_texts


def attention(arguments: list[str]) -> None:
    """`precis attention RUN FILE --out FOLDER`: draw the attention of an RSTformer in a text. Writes a PNG per layer
    with heat maps for each head (with discourse, without, difference), and page.html with tree, summary and maps."""
    parser = ArgumentParser(prog="precis attention", description=attention.__doc__, exit_on_error=False)
    parser.add_argument("run", type=Path, help="the run folder of an RSTformer with discourse")
    parser.add_argument("inputs", nargs="*", type=str, help="a text file; standard input if none")
    parser.add_argument("--out", type=Path, required=True, help="folder for the pictures")
    options = parser.parse_args(arguments)
    read_config(options.run)  # raises a `UserError` if it is no run folder, before torch is imported
    texts = collect_texts(options.inputs)
    if len(texts) > 1:
        raise UserError(f"precis attention draws one document, and there are {len(texts)}; name one file")
    from precis.summarizing.draw_attention import draw_attention  # imports torch and Lightning

    draw_attention(options.run, texts, options.out)


def graph(arguments: list[str]) -> None:
    """`precis graph [FILE ...] --graph NAME` (or standard input): the graph over the paragraphs of texts.
    `precis graph --run RUN`: the graphs of a GraphSum run's documents, with the attention of its summaries.

    Prints each paragraph with its strongest links; --html draws all documents.
    """
    parser = ArgumentParser(prog="precis graph", description=graph.__doc__, exit_on_error=False)
    add = parser.add_argument
    add("inputs", nargs="*", type=str, help="text files, folders of .txt files; standard input if none")
    add("--run", type=Path | None, default=None, help="a run of GraphSum with predictions.jsonl")
    add("--split", type=Literal["test", "val"], default="test", help="with --run: the split that was predicted")
    add("--id", type=list[str] | None, default=None, help="with --run: documents, by their ids")
    add("--documents", type=int, default=5, help="with --run: number of documents if no ids are given")
    add("--graph", type=GraphName | ParagraphGraph, default="similarity", help="graph between paragraphs")
    parser.add_class_arguments(ParagraphRule, "paragraphs")  # how texts are divided into paragraphs
    add("--parser", type=str, default="default", help=f"for --graph rst: {', '.join(PARSERS)}, or a run folder")
    add("--parses", type=Path | None, default=None, help="for --graph rst: folder of parses; by default in the cache")
    add("--language", type=str, default="en", help="ISO code of the language of the files")
    add("--html", type=Path | None, default=None, help="page with a drawing (SVG) of each document")
    options = parser.parse_args(arguments)
    check_outputs(html=options.html)
    built = parser.instantiate_classes(options)  # the same options, with objects for `graph` and `paragraphs`
    if options.run is not None and options.inputs:
        raise UserError("precis graph: a run's own documents, or files; leave --run or the files out")
    from precis.summarizing.graph_drawing import draw_graphs  # imports torch and Lightning

    draw_graphs(built)
