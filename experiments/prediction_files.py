"""Where the predictions of a run stand: a file for each split and source of documents."""

import hashlib
import json
from pathlib import Path
from typing import Any

from callbacks.results_path import results_path
from datamodules.documents import CorpusError

SPLITS = {"test": "test", "validate": "val", "predict": "test"}  # by command
# `precis predict` has a file of its own: its documents may have no references, and it must not replace what was tested.
NAMES = {"test": "predictions.jsonl", "val": "predictions.val.jsonl", "predict": "predictions.predict.jsonl"}


class MissingPredictions(CorpusError):
    """A run has no predictions of a split."""


def predictions_path(folder: Path, command: str, source: str | None = None) -> Path:
    """Return where a command writes its predictions.

    Args:
        folder: the run folder.
        command: `test`, `validate` or `predict`.
        source: name of another corpus than the run's own.
    """
    name = NAMES[command if command == "predict" else SPLITS[command]]
    return folder / (f"{name.removesuffix('.jsonl')}.{source}.jsonl" if source else name)


def source_name(own: dict[str, Any], corpus: dict[str, Any]) -> str | None:
    """Return a name for a corpus that is not the run's own; None for its own.

    Args:
        own: the corpus in the run's config.yaml; arguments that it lacks, as one of an earlier version does, are not
            compared.
        corpus: the corpus of this command.
    """
    if _agrees(own, corpus):
        return None
    digest = hashlib.sha256(json.dumps(corpus, sort_keys=True, default=str).encode()).hexdigest()[:8]
    return f"{corpus.get('class_path', 'corpus').rpartition('.')[2].lower()}-{digest}"


def _agrees(own: Any, other: Any) -> bool:
    if isinstance(own, dict) and isinstance(other, dict):
        return all(_agrees(value, other.get(key)) for key, value in own.items())
    return own == other


def find_predictions(folder: Path, split: str = "test") -> Path:
    """Return the file with a run's predictions of a split (`test`, `val` or `predict`).

    Those of the test split may also be what `precis predict` wrote. Earlier versions of the suite wrote every split to
    predictions.jsonl, which is taken if nothing says that it is another split.

    Raises:
        MissingPredictions: if there is none.
    """
    others = {"test": ("test", "predict"), "val": ("val", "test"), "predict": ("predict",)}[split]
    for name in others:
        path = folder / NAMES[name]
        if path.is_file() and recorded_split(path) in (None, SPLITS.get(split, split)):
            return path
    command = {"val": "validate"}.get(split, split)
    raise MissingPredictions(f"{folder / NAMES[split]}: not there; run `precis {command} --run {folder}` first")


def recorded_split(predictions: Path) -> str | None:
    """Return the split that a file of predictions is of; None where that is not recorded.

    Raises:
        CorpusError: if the record is broken.
    """
    path = results_path(predictions)
    if not path.is_file():
        return None
    return read_json(path).get("split")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file of predictions; a line feed ends a record, and no other separator.

    Raises:
        CorpusError: for a file that is not UTF-8, a line that is no record, an id that occurs twice, or no line at all.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}: not UTF-8 (byte {error.start}); write it anew with `precis test`") from None
    rows: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            name, _ = row["id"], (list(row["summary"]), list(row["references"]), dict(row.get("scores", {})))
            known = name in rows
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise CorpusError(f"{path}:{number}: no record with id, summary and references; write it anew") from None
        if known:
            raise CorpusError(f"{path}:{number}: id {name!r} is there twice; write the file anew with `precis test`")
        rows[name] = row
    if not rows:
        raise CorpusError(f"{path}: no prediction in it; run `precis test` again")
    return list(rows.values())


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file of a run folder.

    Raises:
        CorpusError: naming the file, if there is none in it.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        raise CorpusError(f"{path}: cannot be read ({reason}); restore it, or remove it and make it anew") from None
    if not isinstance(content, dict):
        raise CorpusError(f"{path}: holds no JSON object; restore it, or remove it and make it anew")
    return content
