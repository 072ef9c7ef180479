"""ROUGE of texts, and runs side by side as a data frame."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from datamodules.documents import UserError
from datamodules.text.lines import counted
from precis.api.arguments import checked, metric_names
from precis.evaluation.compare import compare_runs
from precis.evaluation.comparison import how_computed
from precis.evaluation.prediction_fields import SentenceCutter
from precis.evaluation.predictions import Prediction
from precis.evaluation.scorers import ScoreOptions, score


def rouge(
    summaries: str | Sequence[str], references: str | Sequence[str] | Sequence[Sequence[str]], **options: Any
) -> dict[str, float]:
    """Return mean ROUGE F1 x 100 over documents, as `precis evaluate` computes it.

    Args:
        summaries: a text, or one for each document. Each line is a sentence; a single line is split into sentences.
        references: for each document a text, or a list of texts.
        options: fields of `ScoreOptions`, such as `variants="rouge1,rougeL"`, `stem=False`,
            `multi_reference="mean"` or `rouge_parts="prf"`.

    Returns:
        The mean of each ROUGE variant, by name.

    Raises:
        UserError: if the numbers of references and summaries differ, or a reference is empty.
    """
    texts = _as_list("summaries", summaries)
    # for each summary, its reference or list of references; if `summaries` is one text, `references` are all its own
    all_references = [references] if isinstance(summaries, str) else _as_list("references", references)
    if len(texts) != len(all_references) or not texts:
        counts = f"{counted(len(texts), 'summary')} and {counted(len(all_references), 'reference')}"
        raise UserError(f"{counts}; give one reference for each summary")
    if "variants" in options:  # `checked` raises a `UserError` for another type
        checked("variants", options["variants"], str, "names of variants, separated by commas")
    cutter = SentenceCutter(language=checked("language", options.get("language", "en"), str, "an ISO code"))
    predictions = []
    for number, (summary, one_or_several) in enumerate(zip(texts, all_references), start=1):
        name = f"reference {number}"
        split_references = [cutter(_checked_text(name, reference)) for reference in _as_list(name, one_or_several)]
        if not split_references or not all(split_references):
            raise UserError(f"summary {number}: a reference is empty; give it text, or leave the summary out")
        place = f"summary {number}"  # for error messages; `split` below is for the signature of scores
        sentences = cutter(_checked_text(place, summary))
        predictions.append(Prediction(str(number), place, sentences, split_references, split=cutter.name))
    try:
        scores = score(predictions, ["rouge"], ScoreOptions(**options))
    except ValueError as error:
        raise UserError(str(error)) from None
    except TypeError:  # from `ScoreOptions`
        names = ", ".join(ScoreOptions.__dataclass_fields__)
        raise UserError(f"no options {', '.join(options)} of these names; there are {names}") from None
    return {name: float(np.mean(result.values)) for name, result in scores.items()}


def _as_list(name: str, texts: Any) -> list[Any]:
    """Return an argument as a list, with one entry if it is a single text; errors call the argument `name`."""
    return [texts] if isinstance(texts, str) else list(checked(name, texts, Iterable, "a string, or a list of strings"))


def _checked_text(name: str, text: Any) -> str | list[str]:
    """Return `text` if it is a string or a list of sentences; else raise a `UserError` that calls it `name`."""
    for sentence in _as_list(name, text):
        checked(name, sentence, str, "a string, or a list of its sentences")
    return text


def compare(
    *runs: str | Path,
    baseline: str | Path | None = None,
    metrics: str | Sequence[str] | None = None,
    split: str | None = None,
    language: str | None = None,
) -> pd.DataFrame:
    """Compare systems as `precis compare` does; runs that only differ in their seed are one system.

    Args:
        runs: run folders with predictions, sweep folders, files of predictions.
        baseline: the run, or the name of the system, that others are compared with; by default the first.
        metrics: measures, as a list or comma-separated; by default ROUGE, length and repetition.
        split: predicted split, `test`, `val` or `predict`; by default the first of these that all runs have.
        language: code of the language in which ROUGE is computed again; by default, recorded scores are compared.

    Returns:
        A row for each system and measure: `mean` with its interval `low` to `high`, `spread` over seeds, `difference`
        to the baseline with its interval `difference_low` to `difference_high`, its p-value `p`, and whether it is
        `significant`. `attrs["how"]` describes the computation.

    Raises:
        UserError: if the runs cannot be compared.
    """
    if not runs:
        raise UserError("there is no run to compare; give run folders, sweep folders or files of predictions")
    remedy = "a run folder, a sweep folder or a file of predictions"
    paths = [Path(checked("a run", run, str | Path, remedy)) for run in runs]
    baseline = Path(checked("baseline", baseline, str | Path, remedy)) if baseline is not None else None
    comparison = compare_runs(paths, baseline, metric_names(metrics), split, language)
    records = []
    for system, cells in zip(comparison.systems, comparison.cells):  # a cell for each measure
        for measure, cell in zip(comparison.measures, cells):
            records.append({"system": system.name, "measure": measure, **asdict(cell)})
    frame = pd.DataFrame(records).set_index(["system", "measure"])
    numeric_columns = frame.columns.drop("significant")
    frame[numeric_columns] = frame[numeric_columns].astype(float)  # None, such as a missing interval, becomes NaN
    frame.attrs["how"] = how_computed(comparison)
    return frame
