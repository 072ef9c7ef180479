"""Implementation of `precis summarize`: print, draw and mark the summaries of documents."""

import sys
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any

from datasets import Dataset
from jsonargparse import Namespace

from datamodules.corpora.corpus import Corpus, as_document
from datamodules.text.lines import json_line
from datamodules.text.printable import printable_line
from lightning_modules.summarizer import Summary
from precis.runs.run_folder import Run
from precis.summarizing.hugging_face import how_read
from precis.summarizing.length_budget import LengthBudget
from precis.summarizing.load_model import load_model
from precis.summarizing.pretrained_options import read_pretrained_options
from precis.summarizing.show_extraction import SummaryOutput
from precis.summarizing.summarizing import changed_options, summarize_all


def print_summaries(options: Namespace, corpus: Corpus, budget: LengthBudget) -> None:
    """Print a summary of each document.

    Args:
        options: options of `precis summarize`.
        corpus: the documents, as its split "test".
        budget: length of the summaries.
    """
    with TemporaryDirectory(prefix="precis-") as cache:  # the same text is rarely summarized twice
        changes = {"eval_batch_size": options.batch_size, "max_eval": None, "cache_dir": cache}
        changes["on_bad_record"] = options.on_bad_record
        run = load_model(options.checkpoint, corpus=corpus, options=read_pretrained_options(options), **changes)
        documents = run.data.documents("test")
        output = SummaryOutput(options, run.model, documents)
        for summary in _within(budget, run, documents, options.generation, options.heat_map is not None):
            output.keep(summary)
            if note := how_read(summary, options.long_documents):
                print(f"precis: {printable_line(summary.id)}: {note}", file=sys.stderr)
            if options.json:
                print(json_line(summary.record()), end="", flush=True)
                continue
            if len(documents) > 1:
                print(f"== {printable_line(summary.id)}")
            output.print(summary)
        output.write()


def _within(
    budget: LengthBudget, run: Run, documents: Dataset, generation: dict[str, Any], attention: bool
) -> Iterator[Summary]:
    """Yield the summaries of a model within a budget, and report how many generated ones were truncated.

    `generation` has changed options of decoding, which win against those of the budget.
    """
    is_generative, truncated = not hasattr(run.model, "selection"), 0
    with changed_options(run.model, budget.options(run.model) | generation):
        for document, summary in zip(documents, summarize_all(run.model, run.data, attention), strict=True):
            if budget and is_generative:
                truncated += budget.cut(summary, len(as_document(document).text.split()))
            yield summary
    if truncated:
        message = f"{truncated} of {len(documents)} summaries exceeded the budget and were truncated"
        print(f"precis: {message}", file=sys.stderr)
