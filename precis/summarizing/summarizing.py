"""Summaries of documents by a trained model, for the commands and for Python."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import datasets
import torch

from datamodules.corpora.parallel import progress_bar
from datamodules.documents import UserError
from datamodules.summarization import SummarizationData
from lightning_modules.extractive.matchsum import MatchSum
from lightning_modules.summarizer import Summarizer, Summary
from precis.summarizing.hugging_face import HuggingFaceSummarizer, TextDocuments


def summarize_all(
    model: Summarizer | HuggingFaceSummarizer, data: SummarizationData | TextDocuments, attention: bool = False
) -> Iterator[Summary]:
    """Yield a summary of each document of a DataModule's test split, on a GPU if there is one.

    With `attention`, summaries of extractive models have the attention between the sentences of the document.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    with progress_bar() as progress:
        for batch in progress.track(data.test_dataloader(), description="summarizing"):
            batch = batch.to(device)
            summaries = model.summarize(batch)
            for summary, weights in zip(summaries, model.sentence_attention(batch) if attention else ()):
                summary.attention = weights
            yield from summaries


@contextmanager
def changed_options(model: Summarizer | HuggingFaceSummarizer, changes: Mapping[str, Any]) -> Iterator[None]:
    """Change options of decoding, or of the selection of an extractive model, within a context.

    Raises:
        UserError: if the model has no such option, or the value is refused.
    """
    if not changes:
        yield
        return
    if isinstance(model, HuggingFaceSummarizer):
        with model.changed(changes):
            yield
        return
    attribute = "selection" if hasattr(model, "selection") else "decoding"
    original = getattr(model, attribute)
    names = [] if isinstance(model, MatchSum) else [field.name for field in fields(original)]
    for name, value in changes.items():
        if name not in names:
            available = f"it has {', '.join(names)}" if names else "it has none"
            raise UserError(f"{type(model).__name__} has no option {name!r} of summaries; {available}")
        if type(getattr(original, name)) is int and not isinstance(value, int):
            raise UserError(f"{attribute}.{name} is {value!r}; give a whole number")
    try:
        setattr(model, attribute, replace(original, **changes))
    except (TypeError, ValueError) as error:
        raise UserError(f"{attribute}: {error}; change the option") from None
    try:
        yield
    finally:
        setattr(model, attribute, original)


@contextmanager
def quiet_progress() -> Iterator[None]:
    """Hide the progress bars of `datasets` within a context."""
    hidden_before = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not hidden_before:
            datasets.enable_progress_bars()
