"""ROUGE of texts, and runs side by side as a data frame."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from datamodules.documents import CorpusError
from experiments.evaluation.compare import compare_runs
from experiments.evaluation.comparison import how_computed
from experiments.evaluation.prediction_fields import SentenceCutter
from experiments.evaluation.predictions import Prediction
from experiments.evaluation.scorers import ScoreOptions, score


def rouge(
    summaries: str | Sequence[str],
    references: str | Sequence[str] | Sequence[Sequence[str]],
    **options: Any,
) -> dict[str, float]:
    """Return mean ROUGE F1 x 100 over documents, as `precis evaluate` computes it.

    Args:
        summaries: a text, or one for each document. Each line of a text is a sentence; a text of one line is split.
        references: for each document a text, or a list of texts.
        options: fields of `precis evaluate`, such as `variants="rouge1,rougeL"`, `stem=False`,
            `multi_reference="mean"` or `rouge_parts="prf"`.

    Returns:
        The mean of each variant, by name.

    Raises:
        CorpusError: if the numbers of references and summaries differ, or a reference is empty.
    """
    is_single = isinstance(summaries, str)
    texts, targets_of = ([summaries], [references]) if is_single else (list(summaries), references)
    if isinstance(targets_of, str) or len(texts) != len(targets_of) or not texts:
        count = 1 if isinstance(targets_of, str) else len(targets_of)
        raise CorpusError(f"{len(texts)} summaries and {count} references; give one reference for each summary")
    cutter = SentenceCutter()
    predictions = []
    for number, (summary, target) in enumerate(zip(texts, targets_of), start=1):
        targets = [cutter(reference) for reference in ([target] if isinstance(target, str) else target)]
        if not targets or not all(targets):
            raise CorpusError(f"summary {number}: a reference is empty; give it text, or leave the summary out")
        predictions.append(Prediction(str(number), f"summary {number}", cutter(summary), targets, split=cutter.name))
    try:
        scores = score(predictions, ["rouge"], ScoreOptions(**options))
    except TypeError:
        names = ", ".join(ScoreOptions.__dataclass_fields__)
        raise CorpusError(f"no options {', '.join(options)} of these names; there are {names}") from None
    return {name: float(np.mean(result.values)) for name, result in scores.items()}


def compare(
    *runs: str | Path,
    baseline: str | Path | None = None,
    metrics: str | Sequence[str] | None = None,
    split: str | None = None,
) -> pd.DataFrame:
    """Compare systems as `precis compare` does; runs that only differ in their seed are one system.

    Args:
        runs: run folders with predictions, sweep folders, files of predictions.
        baseline: the run, or the name of the system, that others are compared with; by default the first.
        metrics: measures, as a list or comma-separated; by default ROUGE, length and repetition.
        split: `test`, `val` or `predict`; by default the first that all runs have.

    Returns:
        A row for each system and measure: `mean`, `low`, `high`, `spread` (over seeds), `difference` to the baseline
        with `difference_low` and `difference_high`, `p`, `significant`. `attrs["how"]` describes the computation.

    Raises:
        CorpusError: if the runs cannot be compared.
    """
    if not runs:
        raise CorpusError("there is no run to compare; give run folders, sweep folders or files of predictions")
    names = metrics if metrics is None or isinstance(metrics, str) else ",".join(metrics)
    paths, base = [Path(run) for run in runs], Path(baseline) if baseline is not None else None
    comparison = compare_runs(paths, base, names, split)
    rows = []
    for system, cells in zip(comparison.systems, comparison.cells):
        for measure, cell in zip(comparison.measures, cells):
            rows.append({"system": system.name, "measure": measure, **asdict(cell)})
    frame = pd.DataFrame(rows).set_index(["system", "measure"])
    numbers = frame.columns.drop("significant")
    frame[numbers] = frame[numbers].astype(float)  # nan where there is none
    frame.attrs["how"] = how_computed(comparison)
    return frame
