"""Any model that summarizes, by its name or folder, and its summaries for Python and for `precis summarize`."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import datasets
import torch
from datasets import Dataset
from jsonargparse import Namespace

from datamodules.corpora.corpus import Corpus, as_document
from datamodules.corpora.parallel import progress_bar
from datamodules.documents import UserError
from datamodules.summarization import TEST, SummarizationData
from datamodules.text.language import count_words, language_of
from datamodules.text.lines import counted, printable_line
from datamodules.truncation import TRUNCATION
from lightning_modules.extractive.lexrank import LexRank
from lightning_modules.extractive.matchsum import MatchSum
from lightning_modules.summarizer import Summarizer, Summary
from precis.config.shipped import LEXRANK
from precis.runs.run_folder import Run, load_run
from precis.sharing.hub import find_run
from precis.summarizing.hugging_face import HuggingFaceSummarizer, TextDocuments, how_read
from precis.summarizing.show_extraction import show_summaries
from precis.summarizing.summary_options import LengthBudget, PretrainedOptions, read_options

_MAX_REPORTED = 5  # documents that are named as truncated; the others are counted


def load_model(
    name: str | Path,
    checkpoint: Path | None = None,
    corpus: Corpus | None = None,
    options: PretrainedOptions = PretrainedOptions(),
    **changes: Any,
) -> Run:
    """Load a model that summarizes, together with the documents for it to summarize.

    Args:
        name: folder of a run or exported model, its name on the hub, `lexrank`, or name or folder of a model of Hugging
            Face.
        checkpoint: checkpoint of a run to load in place of its best one.
        corpus: documents to read; by default the documents of the run.
        options: options of a model of Hugging Face; runs take only `generation`, `lexrank` takes only `language`, else
            a `UserError` is raised.
        changes: arguments of the run's DataModule to replace; with `lexrank` or a model of Hugging Face, only
            `cache_dir`, `eval_batch_size` and `on_bad_record`.
    """
    folder = find_run(name)  # folder of a run or exported model; None for LexRank and models of Hugging Face
    if folder is not None or name == LEXRANK:
        changed = [key for key, value in vars(options).items() if value != getattr(PretrainedOptions(), key)]
        allowed = ["generation" if folder else "language"] + ["language"] * language_of(options.language).is_english
        if refused := [key for key in changed if key not in allowed]:
            raise UserError(f"{refused[0]}: an option of models of Hugging Face, which {name} is not; leave it out")
    if folder is not None:
        return load_run(folder, checkpoint, corpus=corpus, **changes)
    if checkpoint is not None:
        raise UserError(f"{name}: not a run, so it has no other checkpoints; leave {checkpoint} out")
    changes.pop("max_eval", None)  # a limit on a run's documents; `TextDocuments` reads all
    documents = TextDocuments(corpus, language=options.language, **changes)
    model = LexRank(options.language) if name == LEXRANK else HuggingFaceSummarizer(str(name), options)
    return Run(model, documents, config={})  # no config: the model was not trained by this suite


def summarize_all(
    model: Summarizer | HuggingFaceSummarizer | LexRank,
    data: SummarizationData | TextDocuments,
    attention: bool = False,
) -> Iterator[Summary]:
    """Yield a summary of each test document; with `attention`, each has the attention between L sentences, [L, L]."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    with progress_bar() as progress:
        for batch in progress.track(data.test_dataloader(), description="summarizing"):
            batch = batch.to(device)
            summaries = model.summarize(batch)
            if attention:
                for summary, weights in zip(summaries, model.sentence_attention(batch)):
                    summary.attention = weights
            yield from summaries


@contextmanager
def changed_options(model: Summarizer | HuggingFaceSummarizer | LexRank, changes: Mapping[str, Any]) -> Iterator[None]:
    """Replace options of decoding, or of an extractive model's selection, in a context; a `UserError` if refused."""
    if not changes:
        yield
        return
    if isinstance(model, HuggingFaceSummarizer):
        with model.changed(changes):
            yield
        return
    attribute = "selection" if hasattr(model, "selection") else "decoding"
    original = getattr(model, attribute)  # options as a frozen dataclass
    # MatchSum chooses among candidates of fixed lengths, so its options of selection have no effect.
    option_names = [] if isinstance(model, MatchSum) else [field.name for field in fields(original)]
    for name, value in changes.items():
        if name not in option_names:
            available = f"it has {', '.join(option_names)}" if option_names else "it has none"
            raise UserError(f"{type(model).__name__} has no option {name!r} of summaries; {available}")
        if type(getattr(original, name)) is int and not isinstance(value, int):  # e.g. 4.0 for the size of a beam
            raise UserError(f"{attribute}.{name} is {value!r}; give a whole number")
    try:
        setattr(model, attribute, replace(original, **changes))  # the dataclass checks the values
    except (TypeError, ValueError) as error:
        raise UserError(f"{attribute}: {error}; change the option") from None
    try:
        yield
    finally:
        setattr(model, attribute, original)


@contextmanager
def quiet_progress() -> Iterator[None]:
    """Hide the progress bars of `datasets` within a context: for a few texts, a bar would only flicker."""
    were_hidden = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not were_hidden:  # the state before the context is restored
            datasets.enable_progress_bars()


def print_summaries(options: Namespace, corpus: Corpus, budget: LengthBudget) -> None:
    """Print a summary of each document in the split "test" of a corpus, by the options of `precis summarize`."""
    with TemporaryDirectory(prefix="precis-") as cache:  # deleted at the end: a text is rarely summarized twice
        changes = {"eval_batch_size": options.batch_size, "max_eval": None, "cache_dir": cache}  # None: all documents
        changes["on_bad_record"] = options.on_bad_record
        run = load_model(options.checkpoint, corpus=corpus, options=read_options(PretrainedOptions, options), **changes)
        documents = run.data.documents(TEST)
        show_summaries(options, run.model, documents, _summaries_within(budget, run, documents, options))


def _report_unread(data: SummarizationData) -> None:
    """Print on stderr which documents are truncated, and how many of their units (tokens, sentences, ...) are read."""
    if not data.truncation_limits():
        return  # no option limits documents
    data.truncation[TEST] = []  # any entry prevents the DataModule's report: percentages say little about a few texts
    messages = []
    for document in data.features(TEST).select_columns(["id", TRUNCATION]):
        name, (read, total) = next(iter(document[TRUNCATION].items()))  # such as "source_tokens", (400, 1200)
        if read < total:
            unit = name.split("_")[-1]  # such as "tokens"
            messages.append(f"{printable_line(document['id'])}: first {read} of {total} {unit} were read")
    for message in messages[:_MAX_REPORTED]:
        print(f"precis: {message}", file=sys.stderr)
    if len(messages) > _MAX_REPORTED:
        more = counted(len(messages) - _MAX_REPORTED, "more document")
        print(f"precis: nor was all of {more} read", file=sys.stderr)


def _summaries_within(budget: LengthBudget, run: Run, documents: Dataset, options: Namespace) -> Iterator[Summary]:
    """Yield summaries within a length budget; print on stderr what was not read, and how many summaries were cut."""
    is_generative = not hasattr(run.model, "selection")  # extractive models have options of selection
    num_truncated = 0
    with changed_options(run.model, budget.options(run.model) | options.generation):  # --generation overrides budget
        if isinstance(run.data, SummarizationData):  # of a trained model; for one of Hugging Face, see `how_read` below
            _report_unread(run.data)
        summaries = summarize_all(run.model, run.data, attention=options.heat_map is not None)
        for document, summary in zip(documents, summaries, strict=True):
            if note := how_read(summary, options.long_documents):  # tokens and windows, unless all was read in one
                print(f"precis: {printable_line(summary.id)}: {note}", file=sys.stderr)
            if budget and is_generative:  # extractive models select within the budget
                num_truncated += budget.cut(summary, count_words(as_document(document).sentences))  # True: was cut
            yield from run.model.scored([summary])  # with ROUGE if there is a reference
    if num_truncated:
        message = f"{num_truncated} of {len(documents)} summaries exceeded the budget and were truncated"
        print(f"precis: {message}", file=sys.stderr)
