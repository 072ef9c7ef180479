"""Summaries by the models that come with the suite, in one call."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack, overload

from datamodules.corpora.texts import Records
from datamodules.documents import Document, UserError
from datamodules.text.language import count_words, language_of, warn_if_not_english
from lightning_modules.summary import Summary
from precis.api.arguments import Text, text_rows
from precis.config.run_config import read_config
from precis.config.shipped import LEXRANK, LIGHT, checked_name, shipped_folder
from precis.files.texts import documents_of
from precis.summarizing.summary_options import LengthBudget, PositiveInt, Share

if TYPE_CHECKING:
    from lightning_modules.extractive.light import LightExtractor  # imports torch
    from lightning_modules.extractive.summary import ExtractiveSummary
    from precis.api.runs import Run  # imports Lightning


@lru_cache(maxsize=2)  # the number of models in `LIGHT`, which need no Lightning
def light_model(folder: Path) -> "LightExtractor":
    """Load the extractive model in a folder without Lightning; a `UserError` if its encoder's package is missing."""
    from lightning_modules.extractive.light import LightExtractor

    config = read_config(folder)
    return LightExtractor(config["model"]["init_args"], config["data"]["init_args"], folder)


def light_summaries(
    model: "LightExtractor", documents: Iterable[Document], budget: LengthBudget
) -> "Iterator[ExtractiveSummary]":
    """Yield a summary of each document within a length budget, without Lightning."""
    selection = replace(model.selection, **budget.selection_options())
    for document in documents:
        warn_if_not_english("the models that come with the suite are trained on English", [document.text])
        summary = model.summarize(document.id, document.sentences, selection)
        summary.references = document.references
        summary.score("en")
        yield summary


class SummaryOptions(TypedDict, total=False):
    """Limits of the length of a summary, and its language, see `summarize`."""

    sentences: int | None
    words: int | None
    ratio: float | None
    language: str


@overload
def summarize(texts: Text, model: str | None = None, **options: Unpack[SummaryOptions]) -> Summary: ...
@overload
def summarize(texts: Sequence[Text], model: str | None = None, **options: Unpack[SummaryOptions]) -> list[Summary]: ...
def summarize(
    texts: Text | Sequence[Text],
    model: str | None = None,
    *,
    sentences: int | None = None,
    words: int | None = None,
    ratio: float | None = None,
    language: str = "en",
) -> Summary | list[Summary]:
    """Summarize a text, or several, by a model that comes with the suite.

    Args:
        texts: as in `Run.summarize`.
        model: `extractive`, `small`, `docstring` (for Python docstrings) or `lexrank`; by default `extractive`, or
            `small` if the package with the encoder of `extractive` is not installed; in other languages `lexrank`. For
            a model of your own: `precis.load(RUN).summarize(texts)`.
        sentences: maximum number of sentences of a summary; 3 by default.
        words: maximum number of words of a summary.
        ratio: maximum number of words, as a share of the document's words.
        language: ISO code of the language; other languages than English only with `lexrank`.

    Returns:
        A `Summary`, or a list of them; all models but `docstring` also set `positions` and `sentence_scores`.

    Raises:
        UserError: if a text is empty, there is no such model, or a limit is invalid.
    """
    is_single = isinstance(texts, (str, Mapping, Document))
    name = checked_name(model, language)  # the default if `model` is None
    limits = {"words": (words, PositiveInt), "sentences": (sentences, PositiveInt), "ratio": (ratio, Share)}
    budget = LengthBudget()
    for limit_name, (limit, kind) in limits.items():  # with the types of the command line
        try:
            budget = replace(budget, **{limit_name: limit if limit is None else kind(limit)})
        except (TypeError, ValueError) as error:
            raise UserError(f"{limit_name}: {error}; change it") from None
    documents = documents_of(Records(text_rows(texts)), language)
    if name in LIGHT and language_of(language).is_english:  # works without Lightning, a slow import
        summaries: list[Summary] = list(light_summaries(light_model(shipped_folder(name)), documents, budget))
    else:
        run = _load_run(name, language)
        summaries = run.summarize(documents, **budget.options(run.model))  # limits of selection or decoding
        for document, summary in zip(documents, summaries, strict=True):
            # lexrank selects within the budget; a generative model may exceed it, and is then cut in place
            if name != LEXRANK and budget.cut(summary, count_words(document.sentences)):
                summary.score(language)
    return summaries[0] if is_single else summaries


@lru_cache(maxsize=1)
def _load_run(name: str, language: str) -> "Run":
    from precis.api.runs import load  # imports Lightning

    return load(name, language=language)
