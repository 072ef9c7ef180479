"""Implementation of `precis summarize`: print, draw and mark the summaries of documents."""

import sys
from collections.abc import Iterator
from tempfile import TemporaryDirectory

from datasets import Dataset
from jsonargparse import Namespace

from datamodules.corpora.corpus import Corpus, as_document
from datamodules.summarization import TEST, SummarizationData
from datamodules.text.lines import counted, printable_line
from datamodules.truncation import COLUMN
from lightning_modules.summary import Summary
from precis.runs.run_folder import Run
from precis.summarizing.hugging_face import how_read
from precis.summarizing.length_budget import LengthBudget
from precis.summarizing.pretrained_options import read_pretrained_options
from precis.summarizing.show_extraction import SummaryOutput
from precis.summarizing.summarizing import changed_options, load_model, summarize_all

_MAX_REPORTED = 5  # documents


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
        documents = run.data.documents(TEST)
        output = SummaryOutput(options, run.model, documents)
        output.show(_within(budget, run, documents, options))


def _report_unread(data: SummarizationData) -> None:
    """Say on stderr how much of each document is read, where that is not all of it."""
    if not data.truncation_limits():
        return
    data.truncation[TEST] = []  # the DataModule's report, in shares of a corpus, is replaced by this one
    messages = []
    for row in data.features(TEST).select_columns(["id", COLUMN]):
        units, (read, total) = next(iter(row[COLUMN].items()))
        if read < total:
            messages.append(f"{printable_line(row['id'])}: first {read} of {total} {units.split('_')[-1]} were read")
    for message in messages[:_MAX_REPORTED]:
        print(f"precis: {message}", file=sys.stderr)
    if len(messages) > _MAX_REPORTED:
        more = counted(len(messages) - _MAX_REPORTED, "more document")
        print(f"precis: nor was all of {more} read", file=sys.stderr)


def _within(budget: LengthBudget, run: Run, documents: Dataset, options: Namespace) -> Iterator[Summary]:
    """Yield the summaries of a model within a budget, and report how many generated ones were truncated.

    `options.generation` has changed options of decoding, which win against those of the budget.
    """
    is_generative, truncated = not hasattr(run.model, "selection"), 0
    with changed_options(run.model, budget.options(run.model) | options.generation):
        if isinstance(run.data, SummarizationData):
            _report_unread(run.data)
        summaries = summarize_all(run.model, run.data, attention=options.heat_map is not None)
        for document, summary in zip(documents, summaries, strict=True):
            if note := how_read(summary, options.long_documents):
                print(f"precis: {printable_line(summary.id)}: {note}", file=sys.stderr)
            if budget and is_generative:
                truncated += budget.cut(summary, len(as_document(document).text.split()))
            yield summary
    if truncated:
        message = f"{truncated} of {len(documents)} summaries exceeded the budget and were truncated"
        print(f"precis: {message}", file=sys.stderr)
