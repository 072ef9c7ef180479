"""Files with the predictions of a run: one for each split and corpus."""

import json
from pathlib import Path
from typing import Any

from callbacks.results_path import results_path
from datamodules.documents import UserError
from datamodules.text.hashing import text_digest
from datamodules.text.language import join_sentences
from datamodules.text.lines import load_json
from precis.files.data_files import read_json
from precis.files.texts import read_text

SPLITS = {"test": "test", "validate": "val", "predict": "test"}  # by command
# `precis predict` writes a separate file, because its documents may lack references, and test results must be kept.
NAMES = {"test": "predictions.jsonl", "val": "predictions.val.jsonl", "predict": "predictions.predict.jsonl"}


class MissingPredictions(UserError):
    """Error: a run has no predictions of a split."""


def predictions_path(folder: Path, command: str, source: str | None = None) -> Path:
    """Return where a command writes its predictions of the run's own corpus, or of another one (`source`)."""
    name = NAMES[command if command == "predict" else SPLITS[command]]
    return folder / (f"{name.removesuffix('.jsonl')}.{source}.jsonl" if source else name)


def source_name(run_corpus: dict[str, Any], corpus: dict[str, Any]) -> str | None:
    """Return a name for the corpus of a command that is not the run's own; None for its own."""
    if run_corpus == corpus:
        return None
    digest = text_digest(json.dumps(corpus, sort_keys=True, default=str))[:8]
    return f"{corpus.get('class_path', 'corpus').rpartition('.')[2].lower()}-{digest}"


def find_predictions(folder: Path, split: str = "test") -> Path:
    """Return the file with a run's predictions of a split: `test` (also of `precis predict`), `val` or `predict`."""
    for name in ("test", "predict") if split == "test" else (split,):
        if (folder / NAMES[name]).is_file():
            return folder / NAMES[name]
    command = {"val": "validate"}.get(split, split)
    raise MissingPredictions(f"{folder / NAMES[split]}: not found; run `precis {command} --run {folder}` first")


def recorded_results(predictions: Path) -> dict[str, Any]:
    """Return what is recorded with a file of predictions: split, mean scores, scores of lead-1; empty if nothing is."""
    path = results_path(predictions)
    return read_json(path) if path.is_file() else {}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file of predictions; texts that are strings become lists of one sentence."""
    rows: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = load_json(line)
            references = [_as_list(each) for each in _as_list(row["references"])]
            row |= {"summary": _as_list(row["summary"]), "references": references}
            dict(row.get("scores", {}))
            if not isinstance(row["id"], str | int):
                raise TypeError("an id is a string or a number")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{path}:{number}: no record with id, summary and references; write it again") from None
        name = str(row["id"])
        if name in rows:
            raise UserError(f"{path}:{number}: id {name!r} occurs twice; write the file again with `precis test`")
        rows[name] = row
    if not rows:
        raise UserError(f"{path}: no prediction in it; run `precis test` again")
    return list(rows.values())


def _as_list(value: str | list[Any]) -> list[Any]:
    return [value] if isinstance(value, str) else list(value)


def table_of_predictions(predictions: Path, limit: int) -> tuple[list[str], list[list[Any]]]:
    """Return columns (id, reference, summary, scores) and rows of the first predictions of a file."""
    rows = read_rows(predictions)[:limit]
    names = list(dict.fromkeys(name for row in rows for name in row["scores"]))
    table = []
    for row in rows:
        reference = join_sentences(row["references"][0]) if row["references"] else ""
        scores = [row["scores"].get(name) for name in names]
        table.append([str(row["id"]), reference, join_sentences(row["summary"]), *scores])
    return ["id", "reference", "summary", *names], table
