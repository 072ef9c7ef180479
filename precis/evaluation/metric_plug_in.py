"""User-defined metrics: a class with a method `score(documents, summaries)`, named by its import path."""

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol

import numpy as np

from datamodules.documents import UserError
from precis.evaluation.predictions import Prediction
from precis.statistics.statistics import Array


class Metric(Protocol):
    """A metric of summaries and their documents, such as a measure of factual consistency.

    Optional attributes: `name` of the measure, the class's name in lower case by default; `signature`, what the scores
    depend on, such as the name of a model.
    """

    def score(self, documents: Sequence[str], summaries: Sequence[str]) -> Sequence[float]:
        """Return a score for each pair of document and summary; NaN where there is none."""


def is_plug_in(name: str) -> bool:
    """Return whether the name of a metric is the import path of a class."""
    return "." in name


def plug_in_scores(path: str, predictions: Sequence[Prediction]) -> tuple[str, Array, str]:
    """Return the name of the measure, the scores of all summaries, and how they are computed.

    Args:
        path: import path of a class that is constructed without arguments; modules of the working folder are found.
        predictions: summaries with their documents.

    Raises:
        UserError: if there is no such class, or it returns anything but a number for each summary.
    """
    module, _, name = path.rpartition(".")
    try:
        kind = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"--metrics {path}: {error}; give the import path of a class, as my_metrics.Mine") from None
    if not callable(getattr(kind, "score", None)):
        raise UserError(f"--metrics {path}: it has no method score(documents, summaries); write one")
    metric: Metric = kind()
    documents = [" ".join(prediction.document) for prediction in predictions]
    returned = metric.score(documents, [" ".join(prediction.summary) for prediction in predictions])
    try:
        values = np.array(list(returned), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"--metrics {path}: its scores are not numbers ({error}); return one per summary") from None
    if values.shape != (len(predictions),):
        count = f"{len(values)} scores" if values.ndim == 1 else f"an array of shape {values.shape}"
        raise UserError(f"--metrics {path}: {count} for {len(predictions)} summaries; return a number per summary")
    return getattr(metric, "name", name.lower()), values, f"{path}|{getattr(metric, 'signature', 'unknown')}"
