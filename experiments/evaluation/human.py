"""Correlation of measures with human judgements."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.evaluation.predictions import Prediction
from experiments.evaluation.statistics import CORRELATIONS, Array

FEWEST_SYSTEMS = 3  # two points are always on a line


def correlations(predictions: Sequence[Prediction], measures: Mapping[str, Array]) -> list[dict[str, Any]]:
    """Return the correlations of each measure with each judgement.

    At summary level, if several systems summarize the same documents: the correlation over the systems of a document,
    averaged over documents (Louis and Nenkova 2013), without documents whose scores or judgements are all equal. If
    every document has one summary: the correlation over all summaries. At system level: the correlation of mean scores
    and mean judgements of at least three systems.

    Args:
        predictions: predictions with the same judgements in `human`.
        measures: scores of the predictions; NaN for missing ones.

    Returns:
        A row for each judgement, level and measure: `judgement`, `level`, `measure`, `definition`, `pearson`,
        `spearman`, `kendall` (tau-b; None if undefined), and the numbers of documents, summaries or systems that were
        `used`, out of `of`.
    """
    rows = []
    for judgement in predictions[0].human:
        human = np.array([prediction.human[judgement] for prediction in predictions])
        for level, correlate in (("summary", _summary_level), ("system", _system_level)):
            for measure, scores in measures.items():
                coefficients = correlate(predictions, scores, human)
                if coefficients:
                    rows.append({"judgement": judgement, "level": level, "measure": measure} | coefficients)
    return rows


def _summary_level(predictions: Sequence[Prediction], scores: Array, human: Array) -> dict[str, Any]:
    by_document = defaultdict(list)
    for index, prediction in enumerate(predictions):
        by_document[prediction.id].append(index)
    if max(map(len, by_document.values())) < 2:
        scored = ~np.isnan(scores)
        return _row("over all summaries", scored.sum(), len(scores), _correlate(scores[scored], human[scored]))
    # Documents with as many systems make one matrix.
    groups = defaultdict(list)
    for indices in by_document.values():
        if len(indices) > 1:
            groups[len(indices)].append(indices)
    scores_of = {
        name: np.concatenate([correlation(scores[group], human[group]) for group in map(np.array, groups.values())])
        for name, correlation in CORRELATIONS.items()
    }
    used = ~np.isnan(sum(scores_of.values()))
    means = {name: values[used].mean() if used.any() else np.nan for name, values in scores_of.items()}
    return _row("over the systems of each document, averaged over documents", used.sum(), len(by_document), means)


def _system_level(predictions: Sequence[Prediction], scores: Array, human: Array) -> dict[str, Any] | None:
    by_system = defaultdict(list)
    for index, prediction in enumerate(predictions):
        if not np.isnan(scores[index]):
            by_system[prediction.system].append(index)
    systems = len({prediction.system for prediction in predictions})
    if systems < FEWEST_SYSTEMS:
        return None
    x, y = (np.array([values[indices].mean() for indices in by_system.values()]) for values in (scores, human))
    return _row("over the systems' means", len(x), systems, _correlate(x, y) if len(x) >= FEWEST_SYSTEMS else {})


def _correlate(x: Array, y: Array) -> dict[str, float]:
    return {name: float(correlation(x, y)) for name, correlation in CORRELATIONS.items()} if len(x) > 1 else {}


def _row(definition: str, used: int, of: int, values: Mapping[str, float]) -> dict[str, Any]:
    numbers = {name: values.get(name, np.nan) for name in CORRELATIONS}
    numbers = {name: None if np.isnan(value) else float(value) for name, value in numbers.items()}
    defined = any(value is not None for value in numbers.values())
    return {"definition": definition, "used": int(used) if defined else 0, "of": of} | numbers
