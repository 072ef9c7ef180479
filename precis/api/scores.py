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
        summaries: a text, or one for each document. Lines of a text are sentences; a single line is split into them.
        references: for each document a text, or a list of texts.
        options: fields of `precis evaluate`, such as `variants="rouge1,rougeL"`, `stem=False`,
            `multi_reference="mean"` or `rouge_parts="prf"`.

    Returns:
        The mean of each variant, by name.

    Raises:
        UserError: if the numbers of references and summaries differ, or a reference is empty.
    """
    texts = _listed("summaries", summaries)
    # references of each text: for a single text, a list is its references
    all_targets = [references] if isinstance(summaries, str) else _listed("references", references)
    if len(texts) != len(all_targets) or not texts:
        counts = f"{counted(len(texts), 'summary')} and {counted(len(all_targets), 'reference')}"
        raise UserError(f"{counts}; give one reference for each summary")
    if "variants" in options:
        checked("variants", options["variants"], str, "names of variants, separated by commas")
    cutter = SentenceCutter(language=checked("language", options.get("language", "en"), str, "an ISO code"))
    predictions = []
    for number, (summary, target) in enumerate(zip(texts, all_targets), start=1):
        name = f"reference {number}"
        targets = [cutter(_text(name, reference)) for reference in _listed(name, target)]
        if not targets or not all(targets):
            raise UserError(f"summary {number}: a reference is empty; give it text, or leave the summary out")
        sentences = cutter(_text(f"summary {number}", summary))
        # the signature of the scores names the sentence splitting
        predictions.append(Prediction(str(number), f"summary {number}", sentences, targets, split=cutter.name))
    try:
        scores = score(predictions, ["rouge"], ScoreOptions(**options))
    except ValueError as error:
        raise UserError(str(error)) from None
    except TypeError:  # from `ScoreOptions`
        names = ", ".join(ScoreOptions.__dataclass_fields__)
        raise UserError(f"no options {', '.join(options)} of these names; there are {names}") from None
    return {name: float(np.mean(result.values)) for name, result in scores.items()}


def _listed(name: str, texts: Any) -> list[Any]:
    """Return an argument as a list of texts, even if it is a single text; errors call the argument `name`."""
    return [texts] if isinstance(texts, str) else list(checked(name, texts, Iterable, "a string, or a list of strings"))


def _text(name: str, text: Any) -> str | list[str]:
    """Return a text after checking that it is a string or a list of sentences; errors call it `name`."""
    for part in _listed(name, text):
        checked(name, part, str, "a string, or a list of its sentences")
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
        split: `test`, `val` or `predict`; by default the first that all runs have.
        language: code of the language in which ROUGE is computed again; by default, recorded scores are compared.

    Returns:
        A row for each system and measure: `mean`, `low`, `high`, `spread` (over seeds), `difference` to the baseline
        with `difference_low` and `difference_high`, `p`, `significant`. `attrs["how"]` describes the computation.

    Raises:
        UserError: if the runs cannot be compared.
    """
    if not runs:
        raise UserError("there is no run to compare; give run folders, sweep folders or files of predictions")
    remedy = "a run folder, a sweep folder or a file of predictions"
    paths = [Path(checked("a run", run, str | Path, remedy)) for run in runs]
    base = Path(checked("baseline", baseline, str | Path, remedy)) if baseline is not None else None
    comparison = compare_runs(paths, base, metric_names(metrics), split, language)
    records = []
    for system, cells in zip(comparison.systems, comparison.cells):
        for measure, cell in zip(comparison.measures, cells):
            records.append({"system": system.name, "measure": measure, **asdict(cell)})
    frame = pd.DataFrame(records).set_index(["system", "measure"])
    numbers = frame.columns.drop("significant")
    frame[numbers] = frame[numbers].astype(float)  # None, as where there is no interval, becomes nan
    frame.attrs["how"] = how_computed(comparison)
    return frame
