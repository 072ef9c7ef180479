"""Output of extractive models: scored sentences, documents with marked selection, pictures of attention."""

import sys
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
from datasets import Dataset
from jsonargparse import Namespace
from rich.console import Console
from rich.text import Text

from callbacks.previews import marked
from datamodules.documents import UserError
from datamodules.text.lines import one_line
from datamodules.text.printable import printable
from lightning_modules.extractive.matchsum import MatchSum
from lightning_modules.extractive.summary import ExtractiveSummary
from lightning_modules.summarizer import Summarizer, Summary
from precis.files.figures import heat_map, html_page, new_figure
from precis.summarizing.page_bodies import MACROS


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

    Args:
        summaries: summaries of the documents.
        paragraphs: number of sentences of each paragraph, by document id; other documents are shown as one paragraph.
            Sentences that the model did not read, because of truncation, are counted but not shown.
    """
    documents = []
    for summary in summaries:
        num_read = len(summary.document)
        sizes = (paragraphs or {}).get(summary.id, [num_read])
        total = sum(sizes)
        parts = [range(end - size, min(end, num_read)) for size, end in zip(sizes, accumulate(sizes))]
        documents.append((summary, [part for part in parts if part], total - num_read, total))
    return html_page("Selected sentences", MACROS.selected_sentences(documents))


def draw_sentence_attention(path: Path, attention: np.ndarray, selected: Sequence[int], title: str) -> None:
    """Draw attention between sentences, [L, L], rows to columns, as a PNG; triangles mark selected sentences."""
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


class SummaryOutput:
    """Output of `precis summarize`.

    Args:
        options: options of the command: `mark`, `scores`, `html`, `heat_map`.
        model: the model.
        documents: table of the documents.

    Raises:
        UserError: if the model does not support an option.
    """

    def __init__(self, options: Namespace, model: Summarizer, documents: Dataset) -> None:
        extractive = [f"--{name}" for name in ("scores", "html", "heat_map") if options[name]]
        if extractive and not hasattr(model, "sentence_scores") and not isinstance(model, MatchSum):
            raise UserError(f"{extractive[0]}: {type(model).__name__} selects no sentences; leave it out")
        if options.heat_map and not hasattr(model, "sentence_attention"):
            raise UserError(f"--heat_map: {type(model).__name__} has no attention between sentences; leave it out")
        self.options, self.documents = options, documents
        self.summaries: list[ExtractiveSummary] = []
        self._drawn = 0

    def keep(self, summary: Summary) -> None:
        """Draw the heat map, and keep the summary for the page."""
        if self.options.html:
            self.summaries.append(summary)
        if self.options.heat_map and getattr(summary, "attention", None) is not None:
            path = self.options.heat_map
            self._drawn += 1
            if len(self.documents) > 1:  # map-1.png, map-2.png ..
                path = path.with_name(f"{path.stem}-{self._drawn}{path.suffix}")
            draw_sentence_attention(path, summary.attention, summary.positions, summary.id)

    def print(self, summary: Summary) -> None:
        """Print the summary as requested; control characters are escaped on terminals but kept in files."""
        display = printable if sys.stdout.isatty() else str
        if self.options.scores:
            print(display(sentence_lines(summary)), flush=True)
        elif self.options.mark and isinstance(summary, ExtractiveSummary):
            Console(soft_wrap=True, highlight=False).print(marked_document(summary))
        else:
            print(display(marked(summary) if self.options.mark else summary.text), flush=True)

    def write(self) -> None:
        """Write the page.

        Raises:
            UserError: if a heat map was requested, but the model has no inter-sentence layers.
        """
        if self.options.html:
            sizes = {row["id"]: [len(part) for part in row["parts"]] for row in self.documents}
            self.options.html.write_text(page(self.summaries, sizes), encoding="utf-8")
        if self.options.heat_map and not self._drawn:
            raise UserError("--heat_map: model.inter_sentence.layers is 0, so there is nothing to show; leave it out")
