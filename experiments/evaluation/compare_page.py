"""The page of `precis compare`: one HTML file with all that it shows, for a browser without a network."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datamodules.atomic_write import atomic_file
from experiments.evaluation.comparison import Comparison, cell_lines
from experiments.evaluation.systems import RunRecord, System, config_differences

PAGE = Path(__file__).parent / "page"
BINS = 30
LONGEST_SOURCE = 20_000  # characters of a document that are shown
MOST_POINTS = 300  # of a curve: more than a screen can show


def write_page(
    path: Path, found: Comparison, how: Sequence[str], documents: int, sources: Mapping[str, str] | None = None
) -> None:
    """Writes the page.

    Args:
        found: what it shows.
        how: lines below its table.
        documents: at most so many are shown with their texts; see `chosen_documents`.
        sources: texts of documents by id, shown beside the outputs.
    """
    content = page_data(found, how, documents, sources or {})
    # Inside a script element `<` could end it; JSON may write it as an escape.
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    page = (PAGE / "compare.html").read_text(encoding="utf-8")
    for name, text in (("STYLE", "compare.css"), ("SCRIPT", "compare.js")):
        page = page.replace(f"/*{name}*/", (PAGE / text).read_text(encoding="utf-8"))
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:  # half of a surrogate pair, which a model may write, is in no file
        file.write(page.replace("{DATA}", data.encode("utf-8", "replace").decode("utf-8")))


def page_data(found: Comparison, how: Sequence[str], documents: int, sources: Mapping[str, str]) -> dict[str, Any]:
    """All that the page shows, as plain values; texts are escaped by the browser, which sets them as text."""
    systems = [
        {"name": system.name, "runs": [_run_data(run) for run in system.runs], "cells": [cell_lines(c) for c in row],
         "significant": [cell.significant for cell in row]}
        for system, row in zip(found.systems, found.cells)
    ]  # fmt: skip
    differing = config_differences(found.systems)
    return {
        "baseline": found.baseline,
        "measures": found.measures,
        "systems": systems,
        "how": list(how),
        "curves": curves(found.systems),
        "distributions": {name: distribution(found, name) for name in found.measures},
        "differences": {key: [_plain(value) for value in values] for key, values in differing.items()},
        "documents": document_data(found, documents, sources),
        "allDocuments": found.documents,
    }


def _run_data(run: RunRecord) -> dict[str, Any]:
    keys = ("git_commit", "git_dirty", "command", "device", "python")
    return {"path": str(run.path), "seed": run.seed} | {key: run.environment.get(key) for key in keys}


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def curves(systems: Sequence[System]) -> dict[str, list[dict[str, Any]]]:
    """By logged value, a curve a run: system, seed and points (step, value), thinned out where there are many."""
    found: dict[str, list[dict[str, Any]]] = {}
    for index, system in enumerate(systems):
        for run in system.runs:
            for name, points in run.curves().items():
                finite = [(step, value) for step, value in points if np.isfinite(value)]
                kept = np.unique(np.linspace(0, len(finite) - 1, min(len(finite), MOST_POINTS)).round().astype(int))
                curve = {"system": index, "seed": run.seed, "points": [finite[place] for place in kept]}
                if finite:
                    found.setdefault(name, []).append(curve)
    return found


def distribution(found: Comparison, measure: str) -> dict[str, Any]:
    """Shares of documents in bins of equal width that all systems have in common: scores, and differences to the
    baseline."""
    scores = [system.scores(measure) for system in found.systems]
    minus = [table - scores[found.baseline] for table in scores]
    return {"scores": _histograms(scores), "differences": _histograms(minus)}


def _histograms(tables: Sequence[np.ndarray]) -> dict[str, Any]:
    finite = [table[np.isfinite(table)] for table in tables]
    joined = np.concatenate(finite)
    low, high = (float(joined.min()), float(joined.max())) if len(joined) else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    shares = [(np.histogram(table, edges)[0] / max(1, len(table))).round(5).tolist() for table in finite]
    means = [float(table.mean()) if len(table) else None for table in finite]
    return {"edges": edges.round(4).tolist(), "shares": shares, "means": means}


def chosen_documents(found: Comparison, most: int) -> list[int]:
    """The documents that the page shows, in their order: all, or as many as asked for, evenly over their ranking by how
    far apart the systems are on the first measure, both ends included."""
    scores = np.stack([system.runs[0].measures[found.measures[0]] for system in found.systems])  # [systems, N]
    there = np.where(np.isnan(scores), 0, scores)
    order = np.argsort(there.max(0) - there.min(0), kind="stable")
    if len(order) <= most:
        return list(range(len(order)))
    return sorted(order[np.linspace(0, len(order) - 1, most).round().astype(int)].tolist())


def document_data(found: Comparison, most: int, sources: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the chosen documents: source, references, outputs of each system's first run with their scores."""
    runs = [system.runs[0] for system in found.systems]
    chosen = []
    for place in chosen_documents(found, most):
        outputs = []
        for run in runs:
            row = run.rows[place]
            scores = [_number(run.measures[name][place]) for name in found.measures]
            output = {"text": row["summary"], "scores": scores}
            if row.get("copied") is not None and row.get("words") is not None:
                output |= {"words": row["words"], "copied": row["copied"]}
            outputs.append(output)
        row = runs[0].rows[place]
        content = {"id": str(row["id"]), "references": row["references"], "outputs": outputs}
        if str(row["id"]) in sources:
            content["source"] = _shortened(sources[str(row["id"])])
        chosen.append(content)
    return chosen


def _shortened(text: str) -> str:
    """A text as long as the page shows it; what is left out is counted."""
    rest = len(text) - LONGEST_SOURCE
    return text if rest <= 0 else f"{text[:LONGEST_SOURCE]}\n\n({rest:,} more characters)"


def _number(value: float) -> float | None:
    """Rounded for the page; None where there is no score."""
    return round(float(value), 2) if np.isfinite(value) else None
