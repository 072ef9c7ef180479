"""Correlation of measures with human judgements, at the levels of summaries and of systems."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from datamodules.corpora.parallel import progress_bar
from precis.evaluation.predictions import Prediction
from precis.statistics.correlations import COEFFICIENTS, Level, bootstrap_correlations, correlate, document_correlations
from precis.statistics.statistics import Array, number_or_none

FEWEST_SYSTEMS = 3  # two points are always on a line


def correlations(
    predictions: Sequence[Prediction], measures: Mapping[str, Array], seed: int = 0
) -> list[dict[str, Any]]:
    """Return the correlations of each measure with each judgement.

    At summary level, if several systems summarize the same documents: the correlation over the systems of a document,
    averaged over documents (Louis and Nenkova 2013), without documents whose scores or judgements are all equal. If
    every document has one summary: the correlation over all summaries. At system level: the correlation of mean scores
    and mean judgements of at least three systems.

    Args:
        predictions: predictions with the same judgements in `human`.
        measures: scores of the predictions; NaN for missing ones.
        seed: seed of the bootstrap.

    Returns:
        A row for each judgement, level and measure: `judgement`, `level`, `measure`, `definition`, `pearson`,
        `spearman`, `kendall` (tau-b; None if undefined), and the numbers of documents, summaries or systems that were
        `used`, out of `of`; `intervals` by coefficient, None with fewer than three systems.
    """
    # Scores become tables with a row for each system and a column for each document, in order of appearance.
    systems = {name: row for row, name in enumerate(dict.fromkeys(one.system for one in predictions))}
    documents = {name: column for column, name in enumerate(dict.fromkeys(one.id for one in predictions))}
    places = [systems[one.system] for one in predictions], [documents[one.id] for one in predictions]

    def table(values: Sequence[float]) -> Array:
        filled = np.full((len(systems), len(documents)), np.nan)
        filled[places] = values
        return filled

    tables = {name: table(values) for name, values in measures.items()}                      # [systems, documents] each
    has_intervals = len(systems) >= FEWEST_SYSTEMS
    levels: list[Level] = ["summary", "system"] if has_intervals else ["summary"]
    names = [(judgement, level, name) for judgement in predictions[0].human for level in levels for name in measures]
    rows = []
    with progress_bar() as progress:
        for judgement, level, name in progress.track(names, description="correlations"):
            human = table([one.human[judgement] for one in predictions])
            row = {"judgement": judgement, "level": level, "measure": name} | _coefficients(tables[name], human, level)
            row["intervals"] = None
            if has_intervals:
                bounds = bootstrap_correlations(tables[name], human, level, seed=seed)
                row["intervals"] = {key: [*map(number_or_none, pair)] for key, pair in bounds.items()}
            rows.append(row)
    return rows


def _coefficients(scores: Array, human: Array, level: Level) -> dict[str, Any]:
    """Return what is correlated, of how many items, and the coefficients, None where they are undefined."""
    judged = ~np.isnan(human)
    scored = judged & ~np.isnan(scores)
    if level == "system":
        definition, used, of = "over the systems' means", scored.any(1).sum(), len(scores)
        values = correlate(scores, human, level)[:, 0] if used >= FEWEST_SYSTEMS else [np.nan] * 3
    elif (judged.sum(0) > 1).any():
        definition, of = "over the systems of each document, averaged over documents", human.shape[1]
        values = correlate(scores, human, level)[:, 0]
        used = (~np.isnan(document_correlations(scores, human, np.ones((len(scores), 1))))).all(0).sum()
    else:
        definition, used, of = "over all summaries", scored.sum(), judged.sum()
        values = _over_all(scores[scored], human[scored])
    numbers = dict(zip(COEFFICIENTS, map(number_or_none, values)))
    defined = any(value is not None for value in numbers.values())
    return {"definition": definition, "used": int(used) if defined else 0, "of": int(of)} | numbers


def _over_all(x: Array, y: Array) -> list[float]:
    """Return the coefficients of any number of summaries, too many for a table of all pairs."""
    from scipy import stats  # slow to import, and every command imports this module

    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return [np.nan] * 3
    return [test(x, y).statistic for test in (stats.pearsonr, stats.spearmanr, stats.kendalltau)]
