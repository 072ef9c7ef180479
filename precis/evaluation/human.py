"""Correlation of measures with human judgements, at the levels of summaries and of systems."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from datamodules.corpora.parallel import progress_bar
from datamodules.documents import UserError
from precis.evaluation.predictions import Prediction
from precis.statistics.resampling import Resampled, bootstrap_correlations, permutation_test
from precis.statistics.statistics import CORRELATIONS, Array, number_or_none

FEWEST_SYSTEMS = 3  # two points are always on a line


@dataclass(frozen=True)
class CorrelationOptions:
    """Options of the uncertainty of correlations.

    Attributes:
        resampled: what the bootstrap of correlations draws: systems and documents ("both", for conclusions about other
            systems on other documents), "systems" or "inputs" alone.
        correlation_resamples: number of resamples for correlations.
        against: a measure: p-values of how the other measures' correlations differ from its.
        seed: seed of the draws.
    """

    resampled: Resampled = "both"
    correlation_resamples: int = 1000
    against: str | None = None
    seed: int = 0


def correlations(
    predictions: Sequence[Prediction], measures: Mapping[str, Array], options: CorrelationOptions | None = None
) -> list[dict[str, Any]]:
    """Return the correlations of each measure with each judgement.

    At summary level, if several systems summarize the same documents: the correlation over the systems of a document,
    averaged over documents (Louis and Nenkova 2013), without documents whose scores or judgements are all equal. If
    every document has one summary: the correlation over all summaries. At system level: the correlation of mean scores
    and mean judgements of at least three systems.

    Args:
        predictions: predictions with the same judgements in `human`.
        measures: scores of the predictions; NaN for missing ones.
        options: options of intervals and tests, which need at least three systems that summarize the same documents.

    Returns:
        A row for each judgement, level and measure: `judgement`, `level`, `measure`, `definition`, `pearson`,
        `spearman`, `kendall` (tau-b; None if undefined), and the numbers of documents, summaries or systems that were
        `used`, out of `of`; `intervals` by coefficient (None if there are none); `p` of the difference to the measure
        `against`, if one is named.

    Raises:
        UserError: if `against` is not among the measures.
    """
    options = options or CorrelationOptions()
    if options.against is not None and options.against not in measures:
        raise UserError(f"--against {options.against}: no such measure; there are {', '.join(measures)}")
    rows = []
    for judgement in predictions[0].human:
        human = np.array([prediction.human[judgement] for prediction in predictions])
        for level, correlate in (("summary", _summary_level), ("system", _system_level)):
            for measure, scores in measures.items():
                coefficients = correlate(predictions, scores, human)
                if coefficients:
                    rows.append({"judgement": judgement, "level": level, "measure": measure} | coefficients)
    _add_uncertainty(rows, predictions, measures, options)
    return rows


def _add_uncertainty(
    rows: list[dict[str, Any]],
    predictions: Sequence[Prediction],
    measures: Mapping[str, Array],
    options: CorrelationOptions,
) -> None:
    """Add intervals, and p-values of differences to one measure, to rows of correlations."""
    # Scores become tables with a row for each system and a column for each document, in order of appearance.
    systems = {name: row for row, name in enumerate(dict.fromkeys(one.system for one in predictions))}
    documents = {name: column for column, name in enumerate(dict.fromkeys(one.id for one in predictions))}
    if len(systems) < FEWEST_SYSTEMS:
        for row in rows:
            row["intervals"] = None
        return
    places = [systems[one.system] for one in predictions], [documents[one.id] for one in predictions]

    def table(values: Array) -> Array:
        filled = np.full((len(systems), len(documents)), np.nan)
        filled[places] = values
        return filled

    tables = {name: table(values) for name, values in measures.items()}  # [systems, documents] each
    judgements = {name: table([one.human[name] for one in predictions]) for name in predictions[0].human}
    with progress_bar() as progress:
        for row in progress.track(rows, description="correlations"):
            scores, human, level = tables[row["measure"]], judgements[row["judgement"]], row["level"]
            draws = (options.correlation_resamples, options.seed)
            bounds = bootstrap_correlations(scores, human, level, options.resampled, *draws)
            row["intervals"] = {name: [*map(number_or_none, pair)] for name, pair in bounds.items()}
            if options.against not in (None, row["measure"]):
                p_values = permutation_test(scores, tables[options.against], human, level, *draws)
                row["p"] = {name: number_or_none(value) for name, value in p_values.items()}


def _summary_level(predictions: Sequence[Prediction], scores: Array, human: Array) -> dict[str, Any]:
    by_document = defaultdict(list)
    for index, prediction in enumerate(predictions):
        by_document[prediction.id].append(index)
    if max(map(len, by_document.values())) < 2:
        scored = ~np.isnan(scores)
        return _row("over all summaries", scored.sum(), len(scores), _correlate(scores[scored], human[scored]))
    # Documents with the same number of systems are computed together, as a matrix of indices.
    groups = defaultdict(list)
    for indices in by_document.values():
        if len(indices) > 1:
            groups[len(indices)].append(indices)
    matrices = [np.array(indices) for indices in groups.values()]                # [documents, systems] each
    coefficients = {}
    for name, correlation in CORRELATIONS.items():
        coefficients[name] = np.concatenate([correlation(scores[matrix], human[matrix]) for matrix in matrices])
    used = ~np.isnan(sum(coefficients.values()))
    means = {name: values[used].mean() if used.any() else np.nan for name, values in coefficients.items()}
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
    numbers = {name: number_or_none(value) for name, value in numbers.items()}
    defined = any(value is not None for value in numbers.values())
    return {"definition": definition, "used": int(used) if defined else 0, "of": of} | numbers
