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
    """Return the document with selected sentences in brackets and, if the terminal supports it, in bold."""
    text = Text()
    for index, sentence in enumerate(map(printable, summary.document)):
        chosen = index in summary.positions
        text.append(f"[{sentence}]" if chosen else sentence, style="bold yellow" if chosen else "")
        text.append(" " if index + 1 < len(summary.document) else "")
    return text


def page(summaries: Sequence[ExtractiveSummary], paragraphs: Mapping[str, Sequence[int]] | None = None) -> str:
    """Return a self-contained HTML page: each document with the selection marked, and all scores.

    Documents are divided into the paragraphs whose numbers of sentences are given by id. Sentences that the model did
    not read, because of truncation, are counted but not shown.
    """
    from precis.files.figures import html_page  # imports matplotlib
    from precis.files.templates import template

    documents = []
    for summary in summaries:
        num_read = len(summary.document)
        sizes = (paragraphs or {}).get(summary.id, [num_read])
        total = sum(sizes)
        parts = [range(end - size, min(end, num_read)) for size, end in zip(sizes, accumulate(sizes))]
        documents.append((summary, [part for part in parts if part], total - num_read, total))
    macros = template("precis.summarizing", "pages.html").module
    return html_page("Selected sentences", macros.selected_sentences(documents))


def draw_sentence_attention(path: Path, attention: np.ndarray, selected: Sequence[int], title: str) -> None:
    """Draw attention between sentences, [L, L], rows to columns, as a PNG; triangles mark selected sentences."""
    from precis.files.figures import heat_map, new_figure  # imports matplotlib

    side = min(20.0, 3 + len(attention) / 4)
    figure = new_figure(side + 1, side)
    axes = figure.add_subplot()
    image = heat_map(axes, attention, cmap="Blues", vmin=0)
    places = np.asarray(selected) + 1
    axes.plot(np.full(len(places), 0.5), places, "k>", clip_on=False)
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
    """Print each summary as soon as it is there, and write pictures and the page, by the options of the command.

    The documents are rows of a table if there is a page. A `UserError` if the model does not support an option.
    """
    extractive = [f"--{name}" for name in ("scores", "html", "heat_map") if options[name]]
    # MatchSum has scores of sentences in its summaries alone
    if extractive and not hasattr(model, "sentence_scores") and type(model).__name__ != "MatchSum":
        raise UserError(f"{extractive[0]}: {type(model).__name__} selects no sentences; leave it out")
    if options.heat_map and not hasattr(model, "sentence_attention"):
        raise UserError(f"--heat_map: {type(model).__name__} has no attention between sentences; leave it out")
    on_page, drawn = [], 0
    for summary in summaries:
        if options.html:
            on_page.append(summary)
        if options.heat_map and getattr(summary, "attention", None) is not None:
            drawn += 1
            path = options.heat_map
            if len(documents) > 1:  # map-1.png, map-2.png ..
                path = path.with_name(f"{path.stem}-{drawn}{path.suffix}")
            draw_sentence_attention(path, summary.attention, summary.positions, summary.id)
        if options.json:
            print(json_line(summary.record()), end="", flush=True)
            continue
        if len(documents) > 1:
            print(f"== {printable_line(summary.id)}")
        _print_summary(summary, options)
    if options.html:
        sizes = {row["id"]: [len(part) for part in row["parts"]] for row in documents}
        options.html.write_text(page(on_page, sizes), encoding="utf-8")
    if options.heat_map and not drawn:
        raise UserError("--heat_map: model.inter_sentence.layers is 0, so there is nothing to show; leave it out")


def _print_summary(summary: Summary, options: Namespace) -> None:
    """Print a summary as requested; control characters are escaped on terminals but kept in files."""
    display = printable if sys.stdout.isatty() else str
    if options.scores:
        print(display(sentence_lines(summary)), flush=True)
    elif options.mark and isinstance(summary, ExtractiveSummary):
        Console(soft_wrap=True, highlight=False).print(marked_document(summary))
    elif options.mark:
        from callbacks.previews import marked  # imports Lightning

        print(display(marked(summary)), flush=True)
    else:
        print(display(summary.text), flush=True)
