"""Output of extractive models: scored sentences, documents with marked selection, pictures of attention."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jsonargparse import Namespace
from rich.console import Console
from rich.text import Text

from datamodules.documents import Document, UserError
from datamodules.text.lines import json_line, one_line, printable, printable_line
from lightning_modules.extractive.summary import ExtractiveSummary
from lightning_modules.summary import Summary

if TYPE_CHECKING:
    from datasets import Dataset

    from lightning_modules.extractive.light import LightExtractor
    from lightning_modules.summarizer import Summarizer


def sentence_lines(summary: ExtractiveSummary) -> str:
    """Return a line for each sentence: `*` if selected, position from 1, score, text."""
    width = len(str(len(summary.document)))
    return "\n".join(
        f"{'*' if index in summary.positions else ' '} {index + 1:>{width}}  {score:.3f}  {sentence}"
        for index, (sentence, score) in enumerate(zip(summary.document, summary.sentence_scores))
    )


def marked_document(summary: ExtractiveSummary) -> Text:
    """Return the document with selected sentences in brackets and, on terminals that support it, in bold yellow."""
    text = Text()
    for index, sentence in enumerate(map(printable, summary.document)):  # control characters are escaped
        is_selected = index in summary.positions
        text.append(f"[{sentence}]" if is_selected else sentence, style="bold yellow" if is_selected else "")
        text.append(" " if index + 1 < len(summary.document) else "")
    return text


def page(summaries: Sequence[ExtractiveSummary], paragraphs: Mapping[str, Sequence[int]]) -> str:
    """Return a self-contained HTML page: each document with its selected sentences marked, and all scores.

    `paragraphs` maps the id of a document to the number of sentences in each paragraph. The page also says how many
    sentences were after the model's length limit, so were not read.
    """
    from precis.files.figures import html_page  # imports matplotlib
    from precis.files.templates import template

    documents = []  # summary, paragraphs, number of unread and of all sentences
    for summary in summaries:
        num_read = len(summary.document)
        sizes = paragraphs[summary.id]  # number of sentences in each paragraph
        total = sum(sizes)
        ranges = [range(end - size, min(end, num_read)) for size, end in zip(sizes, accumulate(sizes))]
        # `ranges`: indices of the sentences of each paragraph that were read; empty after the model's limit.
        documents.append((summary, [sentences for sentences in ranges if sentences], total - num_read, total))
    macros = template("precis.summarizing", "pages.html").module
    return html_page("Selected sentences", macros.selected_sentences(documents))


def draw_sentence_attention(path: Path, attention: np.ndarray, selected: Sequence[int], title: str) -> None:
    """Draw attention [L, L] of L sentences (rows) to each other (columns) as a PNG; triangles mark selected rows."""
    from precis.files.figures import heat_map, new_figure  # imports matplotlib

    side = min(20.0, 3 + len(attention) / 4)  # inches: a quarter for each sentence, and room for the labels
    figure = new_figure(side + 1, side)  # 1 inch for the color bar
    axes = figure.add_subplot()
    image = heat_map(axes, attention, cmap="Blues", vmin=0)
    numbers = np.asarray(selected) + 1  # heat maps count from 1
    axes.plot(np.full(len(numbers), 0.5), numbers, "k>", clip_on=False)  # x = 0.5: left edge of column 1
    axes.set(xlabel="at sentence", ylabel="attention of sentence")
    axes.set_title(one_line(title), parse_math=False)  # an id may contain "$", which would start a formula
    figure.colorbar(image, ax=axes, label="mean of the heads")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, format="png")


def show_summaries(
    options: Namespace,
    model: "Summarizer | LightExtractor",
    documents: "Dataset | Sequence[Document]",
    summaries: Iterable[Summary],
) -> None:
    """Print each summary as soon as it is generated, and write pictures and a page, if the options ask for them.

    With `options.html`, the documents are a `Dataset`. A `UserError` if the model does not support an option.
    """
    extractive_options = [f"--{name}" for name in ("scores", "html", "heat_map") if options[name]]
    # MatchSum has no method `sentence_scores`, but its summaries have scores.
    if extractive_options and not hasattr(model, "sentence_scores") and type(model).__name__ != "MatchSum":
        raise UserError(f"{extractive_options[0]}: {type(model).__name__} selects no sentences; leave it out")
    if options.heat_map and not hasattr(model, "sentence_attention"):
        raise UserError(f"--heat_map: {type(model).__name__} has no attention between sentences; leave it out")
    page_summaries, num_heat_maps = [], 0  # summaries for the page, and heat maps drawn so far
    for summary in summaries:
        if options.html:
            page_summaries.append(summary)
        if options.heat_map and getattr(summary, "attention", None) is not None:  # None: no inter-sentence layers
            num_heat_maps += 1
            path = options.heat_map
            if len(documents) > 1:  # map-1.png, map-2.png ..
                path = path.with_name(f"{path.stem}-{num_heat_maps}{path.suffix}")
            draw_sentence_attention(path, summary.attention, summary.positions, summary.id)
        if options.json:
            print(json_line(summary.record()), end="", flush=True)  # flush: a pipe gets it before the next summary
            continue
        if len(documents) > 1:
            print(f"== {printable_line(summary.id)}")
        _print_summary(summary, options)
    if options.html:
        sizes = {document["id"]: [len(part) for part in document["parts"]] for document in documents}
        options.html.parent.mkdir(parents=True, exist_ok=True)
        options.html.write_text(page(page_summaries, sizes), encoding="utf-8")  # sizes of paragraphs, in sentences
    if options.heat_map and not num_heat_maps:
        raise UserError("--heat_map: model.inter_sentence.layers is 0, so there is nothing to show; leave it out")


def _print_summary(summary: Summary, options: Namespace) -> None:
    """Print a summary; with `--scores`, all sentences with scores; with `--mark`, mark selected or copied text."""
    display = printable if sys.stdout.isatty() else str  # control characters could take over a terminal, but not a file
    if options.scores:
        print(display(sentence_lines(summary)), flush=True)
    elif options.mark and isinstance(summary, ExtractiveSummary):  # `marked_document` escapes control characters
        Console(soft_wrap=True, highlight=False).print(marked_document(summary))
    elif options.mark:
        from callbacks.previews import marked  # imports Lightning

        print(display(marked(summary)), flush=True)
    else:
        print(display(summary.text), flush=True)
