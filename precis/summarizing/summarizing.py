"""Any model that summarizes, by its name or folder, and its summaries, for the commands and for Python."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import datasets
import torch

from datamodules.corpora.corpus import Corpus
from datamodules.corpora.parallel import progress_bar
from datamodules.documents import UserError
from datamodules.summarization import SummarizationData
from lightning_modules.extractive.matchsum import MatchSum
from lightning_modules.summarizer import Summarizer, Summary
from precis.runs.run_folder import Run, load_run
from precis.sharing.hub import find_run
from precis.summarizing.hugging_face import HuggingFaceSummarizer, TextDocuments
from precis.summarizing.pretrained_options import PretrainedOptions


def load_model(
    name: str | Path,
    checkpoint: Path | None = None,
    corpus: Corpus | None = None,
    options: PretrainedOptions = PretrainedOptions(),
    **changes: Any,
) -> Run:
    """Load a model that summarizes, with documents for it.

    Args:
        name: folder of a run or exported model, its name on the hub, or name or folder of a model of Hugging Face.
        checkpoint: another checkpoint of a run than its best one.
        corpus: documents to read; by default those of the run.
        options: options of a model of Hugging Face.
        changes: changed arguments of a run's DataModule; other models have `cache_dir`, `eval_batch_size` and
            `on_bad_record` of these.

    Raises:
        UserError: if there is no such model, or an option is not one of this kind of model.
    """
    folder = find_run(name)
    if folder is not None:
        changed = [key for key, value in vars(options).items() if value != getattr(PretrainedOptions(), key)]
        if others := [key for key in changed if key != "generation"]:
            raise UserError(f"{others[0]}: an option of models of Hugging Face, which {name} is not; leave it out")
        return load_run(folder, checkpoint, corpus=corpus, **changes)
    if checkpoint is not None:
        raise UserError(f"{name}: a model of Hugging Face, which has no other checkpoints; leave {checkpoint} out")
    changes.pop("max_eval", None)
    documents = TextDocuments(corpus, language=options.language, **changes)
    return Run(HuggingFaceSummarizer(str(name), options), documents, {})


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
