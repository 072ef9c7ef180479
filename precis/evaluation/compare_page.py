"""HTML page of `precis compare`, self-contained for browsers without network."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datamodules.atomic_write import atomic_file
from precis.config.run_config import as_flag
from precis.evaluation.compared_systems import System, config_differences
from precis.evaluation.comparison import Comparison, cell_lines

PAGE = Path(__file__).parent / "page"
BINS = 30  # of histograms
MAX_SOURCE = 20_000  # maximum number of characters of a document in the page, which may have a thousand documents
ENVIRONMENT_KEYS = ("git_commit", "git_dirty", "command", "device", "python")
MAX_POINTS = 300  # maximum number of points of a curve; more could not be told apart on a screen


def write_page(
    path: Path, comparison: Comparison, notes: Sequence[str], documents: int, sources: Mapping[str, str] | None = None
) -> None:
    """Write a self-contained page with at most `documents` documents; `sources` has texts of documents by id."""
    content = page_data(comparison, notes, documents, sources or {})
    # In a script element, "</script" or "<!--" of a text would end the JSON, so each "<" is escaped.
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    page, style, code = ((PAGE / f"compare.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    page = page.replace("/*STYLE*/", style).replace("/*SCRIPT*/", code)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:  # "replace": half of a surrogate pair, which a model may write, becomes "?"
        file.write(page.replace("{DATA}", data.encode("utf-8", "replace").decode("utf-8")))


def page_data(
    comparison: Comparison, notes: Sequence[str], max_documents: int, sources: Mapping[str, str]
) -> dict[str, Any]:
    """Return the data of the page as plain values, texts not escaped; `sources` has texts of documents by id."""
    systems = []
    for system, cells in zip(comparison.systems, comparison.cells):
        runs = []
        for run in system.runs:
            environment = {key: run.environment.get(key) for key in ENVIRONMENT_KEYS}
            runs.append({"path": str(run.path), "seed": run.seed, **environment})
        lines = [cell_lines(cell) for cell in cells]  # for each measure: mean, interval, difference ... as texts
        significant = [cell.significant for cell in cells]
        systems.append({"name": system.name, "runs": runs, "cells": lines, "significant": significant})
    settings = [system.runs[0].setting for system in comparison.systems]  # config values by key; some lack a key
    differing = config_differences(comparison.systems)  # by config key; `as_flag` turns values into text
    return {
        "baseline": comparison.baseline,  # an index of `systems`
        "measures": comparison.measures,
        "systems": systems,
        "how": list(notes),  # how the numbers were computed
        "curves": curves(comparison.systems),
        "distributions": {name: distribution(comparison, name) for name in comparison.measures},
        "differences": {key: [as_flag(setting.get(key, "–")) for setting in settings] for key in differing},
        "documents": document_data(comparison, max_documents, sources),
        "allDocuments": comparison.documents,  # number of documents, including those not in the page
    }


def curves(systems: Sequence[System]) -> dict[str, list[dict[str, Any]]]:
    """Return by logged name a curve for each run: index of the system, seed, at most `MAX_POINTS` of (step, value)."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for index, system in enumerate(systems):
        for run in system.runs:
            for name, points in run.curves().items():
                finite = [(step, value) for step, value in points if np.isfinite(value)]  # JSON has no NaN
                if not finite:
                    continue
                count = min(len(finite), MAX_POINTS)
                indices = np.linspace(0, len(finite) - 1, count).round().astype(int)  # evenly spaced indices
                curve = {"system": index, "seed": run.seed, "points": [finite[i] for i in indices]}
                by_name.setdefault(name, []).append(curve)
    return by_name


def distribution(comparison: Comparison, measure: str) -> dict[str, Any]:
    """Return histograms of each system's scores of documents, and of their differences to the baseline's scores."""
    scores = [system.scores(measure) for system in comparison.systems]  # each [N documents]
    differences = [system_scores - scores[comparison.baseline] for system_scores in scores]
    return {"scores": _histograms(scores), "differences": _histograms(differences)}


def _histograms(arrays: Sequence[np.ndarray]) -> dict[str, Any]:
    """Return edges of `BINS` common bins, and for each system's array the share of values in each bin, and the mean."""
    finite = [array[np.isfinite(array)] for array in arrays]
    joined = np.concatenate(finite)
    low, high = (float(joined.min()), float(joined.max())) if len(joined) else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)  # equal values: from low to low + 1
    shares = [(np.histogram(array, edges)[0] / max(1, len(array))).round(5).tolist() for array in finite]  # 0 if empty
    means = [float(array.mean()) if len(array) else None for array in finite]
    return {"edges": edges.round(4).tolist(), "shares": shares, "means": means}


def chosen_documents(comparison: Comparison, max_count: int) -> list[int]:
    """Return up to `max_count` indices of documents, evenly spread from small to large differences between systems."""
    measure = comparison.measures[0]  # documents are chosen by this measure, in first runs, whose outputs are shown
    first_runs = [system.runs[0].measures[measure] for system in comparison.systems]
    scores = np.nan_to_num(np.stack(first_runs))  # [systems, N]; NaN, which has no rank, becomes 0
    ranking = np.argsort(scores.max(0) - scores.min(0), kind="stable")  # documents by range of scores over systems, [N]
    count = min(len(ranking), max_count)
    return sorted(ranking[np.linspace(0, len(ranking) - 1, count).round().astype(int)].tolist())  # corpus order


def document_data(comparison: Comparison, max_count: int, sources: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return up to `max_count` documents: id, source text, references, outputs of systems' first runs with scores."""
    runs = [system.runs[0] for system in comparison.systems]
    documents = []
    for index in chosen_documents(comparison, max_count):
        outputs = []
        for run in runs:
            record = run.rows[index]
            scores = [_number(run.measures[name][index]) for name in comparison.measures]
            output = {"text": record["summary"], "scores": scores}
            if record.get("copied") is not None and record.get("words") is not None:  # of models that copy words
                output |= {"words": record["words"], "copied": record["copied"]}  # whether each word was copied
            outputs.append(output)
        record = runs[0].rows[index]  # id and references are the same for all runs
        content = {"id": record["id"], "references": record["references"], "outputs": outputs}
        if (text := sources.get(record["id"])) is not None:
            excess = len(text) - MAX_SOURCE
            content["source"] = text if excess <= 0 else f"{text[:MAX_SOURCE]}\n\n({excess:,} more characters)"
        documents.append(content)
    return documents


def _number(value: float) -> float | None:
    """Round a score for the page; None for missing scores."""
    return round(float(value), 2) if np.isfinite(value) else None
