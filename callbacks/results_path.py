"""Path of the mean scores of predictions."""

from pathlib import Path


def results_path(predictions: Path) -> Path:
    """Return results.json for predictions.jsonl, results.val.json for predictions.val.jsonl, else NAME.results.json."""
    stem = predictions.name.removesuffix(".jsonl")
    prefix, _, split = stem.partition(".")  # `predictions.val` has `val`, `predictions` has ""
    name = ".".join(filter(None, ["results", split])) if prefix == "predictions" else f"{stem}.results"
    return predictions.with_name(f"{name}.json")
