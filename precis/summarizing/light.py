"""Summaries by shipped extractive models, without the imports of a whole run."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from datamodules.documents import Document, UserError
from datamodules.text.language import warn_if_not_english
from precis.config.run_config import read_config
from precis.summarizing.length_budget import LengthBudget

if TYPE_CHECKING:
    from lightning_modules.extractive.light import LightExtractor  # imports torch
    from lightning_modules.extractive.summary import ExtractiveSummary


@lru_cache(maxsize=2)
def light_model(folder: Path) -> "LightExtractor":
    """Return the model of `LIGHT` in a folder, loaded once in a process.

    Raises:
        UserError: if its encoder is not installed.
    """
    from lightning_modules.extractive.light import LightExtractor

    config = read_config(folder)
    return LightExtractor(config["model"]["init_args"], config["data"]["init_args"], folder)


def light_summaries(
    model: "LightExtractor", documents: Iterable[Document], budget: LengthBudget
) -> "Iterator[ExtractiveSummary]":
    """Yield the summaries of documents by a model of `LIGHT`, within a budget.

    Raises:
        UserError: if a limit of the budget is refused.
    """
    try:
        selection = replace(model.selection, **budget.selection_options())
    except ValueError as error:
        raise UserError(f"selection: {error}; change the option") from None
    for document in documents:
        warn_if_not_english("the models that come with the suite are trained on English", [document.text])
        summary = model.summarize(document.id, document.sentences, selection)
        summary.references = document.references
        yield summary
