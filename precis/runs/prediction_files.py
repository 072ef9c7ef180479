"""Files with the predictions of a run: one for each split and corpus."""

import json
import shlex
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


def predictions_path(folder: Path, command: str, source: str | None = None) -> Path:
    """Return the path of predictions by `test`, `validate` or `predict`; `source`: `source_name` of another corpus."""
    name = NAMES[command if command == "predict" else SPLITS[command]]
    return folder / (f"{name.removesuffix('.jsonl')}.{source}.jsonl" if source else name)


def source_name(run_corpus: dict[str, Any], corpus: dict[str, Any]) -> str | None:
    """Return a name such as `files-1a2b3c4d` (class and digest) for a config `corpus`; None if it is the run's."""
    if run_corpus == corpus:
        return None
    digest = text_digest(json.dumps(corpus, sort_keys=True, default=str))[:8]  # enough for the corpora of one run
    return f"{corpus.get('class_path', 'corpus').rpartition('.')[2].lower()}-{digest}"


def find_predictions(folder: Path, split: str = "test") -> Path:
    """Return the file with a run's predictions of a split: `test`, `val`, or `predict` (by `precis predict`)."""
    if path := existing_predictions(folder, split):
        return path
    command = {"val": "validate"}.get(split, split)  # `test` and `predict` are commands
    words = shlex.join(["precis", command, "--run", str(folder)])
    raise UserError(f"{folder / NAMES[split]}: not found; run `{words}` first")


def existing_predictions(folder: Path, split: str) -> Path | None:
    """Return the file that `find_predictions` looks for; None if there is none."""
    names = ("test", "predict") if split == "test" else (split,)  # `precis predict` reads the test split, too
    paths = [folder / NAMES[name] for name in names]
    return next(filter(Path.is_file, paths), None)


def recorded_results(predictions: Path) -> dict[str, Any]:
    """Return what is recorded with a file of predictions: split, mean scores, scores of lead-1; {} if nothing is."""
    path = results_path(predictions)
    return read_json(path) if path.is_file() else {}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file of predictions; ids become strings, each summary and reference a list of strings."""
    records: dict[str, dict[str, Any]] = {}  # by id, in the order of the file
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = load_json(line)
            references = [_as_list(reference) for reference in _as_list(record["references"])]
            record |= {"summary": _as_list(record["summary"]), "references": references}
            dict(record.get("scores", {}))  # raises an error if they are not a mapping
            record_id = record["id"]
            if isinstance(record_id, float) and record_id.is_integer():  # pandas writes 1 as 1.0
                record_id = int(record_id)
            if not isinstance(record_id, str | int):
                raise TypeError("an id is a string or a number")
            record["id"] = record_id = str(record_id)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{path}:{number}: no record with id, summary and references; write it again") from None
        if record_id in records:
            raise UserError(f"{path}:{number}: id {record_id!r} occurs twice; give a file for each system")
        records[record_id] = record
    if not records:
        raise UserError(f"{path}: no prediction in it; run `precis test` again")
    return list(records.values())


def _as_list(value: str | list[Any]) -> list[Any]:
    return [value] if isinstance(value, str) else list(value)


def table_of_predictions(predictions: Path, limit: int) -> tuple[list[str], list[list[Any]]]:
    """Return column names (id, first reference, summary, scores), and cells of the first `limit` predictions."""
    records = read_rows(predictions)[:limit]
    measures = list(dict.fromkeys(name for record in records for name in record["scores"]))  # each once, in order
    table = []
    for record in records:
        reference = join_sentences(record["references"][0]) if record["references"] else ""
        scores = [record["scores"].get(name) for name in measures]  # None for missing scores
        table.append([record["id"], reference, join_sentences(record["summary"]), *scores])
    return ["id", "reference", "summary", *measures], table
