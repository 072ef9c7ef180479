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
BINS = 30
LONGEST_SOURCE = 20_000  # characters of a document that are shown
RECORDED = ("git_commit", "git_dirty", "command", "device", "python")
MOST_POINTS = 300  # points of a curve, more than a screen can show


def write_page(
    path: Path, comparison: Comparison, notes: Sequence[str], documents: int, sources: Mapping[str, str] | None = None
) -> None:
    """Write the page, with at most some documents and the source texts that there are, by id."""
    content = page_data(comparison, notes, documents, sources or {})
    # Inside a script element `<` could end it; JSON may write it as an escape.
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    page, style, code = ((PAGE / f"compare.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    page = page.replace("/*STYLE*/", style).replace("/*SCRIPT*/", code)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:  # half of a surrogate pair, which a model may write, is in no file
        file.write(page.replace("{DATA}", data.encode("utf-8", "replace").decode("utf-8")))


def page_data(
    comparison: Comparison, notes: Sequence[str], documents: int, sources: Mapping[str, str]
) -> dict[str, Any]:
    """Return the data of the page as plain values; the browser inserts texts as text nodes, which escapes them."""
    systems = []
    for system, row in zip(comparison.systems, comparison.cells):
        systems.append({
            "name": system.name,
            "runs": [
                {"path": str(run.path), "seed": run.seed} | {key: run.environment.get(key) for key in RECORDED}
                for run in system.runs
            ],
            "cells": [cell_lines(cell) for cell in row],
            "significant": [cell.significant for cell in row],
        })  # fmt: skip
    differing = config_differences(comparison.systems)

    def config_value(system: System, key: str) -> str:
        # a dash where the config lacks the key, or there is no config
        return as_flag(system.runs[0].setting.get(key, "–"))

    return {
        "baseline": comparison.baseline,
        "measures": comparison.measures,
        "systems": systems,
        "how": list(notes),
        "curves": curves(comparison.systems),
        "distributions": {name: distribution(comparison, name) for name in comparison.measures},
        "differences": {key: [config_value(system, key) for system in comparison.systems] for key in differing},
        "documents": document_data(comparison, documents, sources),
        "allDocuments": comparison.documents,
    }


def curves(systems: Sequence[System]) -> dict[str, list[dict[str, Any]]]:
    """Return a curve for each logged value and run: system, seed and points (step, value), subsampled if too many."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for index, system in enumerate(systems):
        for run in system.runs:
            for name, points in run.curves().items():
                finite = [(step, value) for step, value in points if np.isfinite(value)]
                count = min(len(finite), MOST_POINTS)
                subsample = np.unique(np.linspace(0, len(finite) - 1, count).round().astype(int))
                curve = {"system": index, "seed": run.seed, "points": [finite[place] for place in subsample]}
                if finite:
                    by_name.setdefault(name, []).append(curve)
    return by_name


def distribution(comparison: Comparison, measure: str) -> dict[str, Any]:
    """Return histograms of scores, and of differences to the baseline, as shares of documents in common bins."""
    scores = [system.scores(measure) for system in comparison.systems]
    minus = [table - scores[comparison.baseline] for table in scores]
    return {"scores": _histograms(scores), "differences": _histograms(minus)}


def _histograms(tables: Sequence[np.ndarray]) -> dict[str, Any]:
    finite = [table[np.isfinite(table)] for table in tables]
    joined = np.concatenate(finite)
    low, high = (float(joined.min()), float(joined.max())) if len(joined) else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    shares = [(np.histogram(table, edges)[0] / max(1, len(table))).round(5).tolist() for table in finite]
    means = [float(table.mean()) if len(table) else None for table in finite]
    return {"edges": edges.round(4).tolist(), "shares": shares, "means": means}


def chosen_documents(comparison: Comparison, count: int) -> list[int]:
    """Return the documents to show: all, or `count` evenly spaced in the ranking by the range of the first measure."""
    measure = comparison.measures[0]
    rows = [system.runs[0].measures[measure] for system in comparison.systems]
    scores = np.nan_to_num(np.stack(rows))  # [systems, N]
    order = np.argsort(scores.max(0) - scores.min(0), kind="stable")
    if len(order) <= count:
        return list(range(len(order)))
    return sorted(order[np.linspace(0, len(order) - 1, count).round().astype(int)].tolist())


def document_data(comparison: Comparison, most: int, sources: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the chosen documents: source, references, outputs of each system's first run with their scores."""
    runs = [system.runs[0] for system in comparison.systems]
    chosen = []
    for place in chosen_documents(comparison, most):
        outputs = []
        for run in runs:
            row = run.rows[place]
            scores = [_number(run.measures[name][place]) for name in comparison.measures]
            output = {"text": row["summary"], "scores": scores}
            if row.get("copied") is not None and row.get("words") is not None:
                output |= {"words": row["words"], "copied": row["copied"]}
            outputs.append(output)
        row = runs[0].rows[place]
        content = {"id": str(row["id"]), "references": row["references"], "outputs": outputs}
        if (text := sources.get(str(row["id"]))) is not None:
            rest = len(text) - LONGEST_SOURCE
            content["source"] = text if rest <= 0 else f"{text[:LONGEST_SOURCE]}\n\n({rest:,} more characters)"
        chosen.append(content)
    return chosen


def _number(value: float) -> float | None:
    """Round a score for the page; None for missing scores."""
    return round(float(value), 2) if np.isfinite(value) else None
