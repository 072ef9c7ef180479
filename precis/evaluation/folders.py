"""Folders with the outputs of several systems: a file for each system, or files whose records name systems."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from datamodules.documents import UserError
from precis.evaluation.layouts import refuse_pickle
from precis.evaluation.predictions import Prediction, check_ids
from precis.files.texts import is_records

# what `precis evaluate`, `test` and `baseline` write beside outputs
_RECORDS = (".scores.jsonl", ".signatures.json", ".checkpoint.json", ".results.json", ".answers.jsonl")


def system_files(folder: Path, excluded: Iterable[Path], plain_text: bool) -> list[Path]:
    """Return the files of a folder that have outputs, sorted by name; others are named on standard error.

    Args:
        folder: the folder.
        excluded: files with references or documents, which may be in the folder.
        plain_text: whether files named .txt have outputs.

    Raises:
        UserError: for a pickle, or if no file has outputs.
    """
    if (folder / "config.yaml").is_file() and (folder / "environment.json").is_file():
        raise UserError(f"{folder}: a run folder; give {folder / 'predictions.jsonl'}")
    others = {path.resolve() for path in excluded}
    files, skipped = [], []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name.endswith(_RECORDS) or path.resolve() in others:
            continue
        refuse_pickle(path)
        if path.is_file() and (is_records(path) or (plain_text and path.suffix == ".txt")):
            files.append(path)
        else:
            skipped.append(path.name)
    if not files:
        kinds = ".jsonl, .json, .csv or .parquet, or .txt with --references"
        raise UserError(
            f"{folder}: no file with summaries in this folder; put a file for each system there ({kinds})"
        )
    if skipped:
        print(f"{folder}: not read: {', '.join(skipped)}", file=sys.stderr)
    return files


def read_systems(files: Iterable[Path], read: Callable[[Path], list[Prediction]]) -> list[Prediction]:
    """Return the outputs of all files; a file without names of systems has those of one, named like the file.

    Args:
        files: files with outputs.
        read: reads one of them.

    Raises:
        UserError: if two files have an output of the same system for the same document.
    """
    predictions = []
    for path in files:
        name = path.name.split(".")[0]
        predictions += [replace(one, system=name) if one.system is None else one for one in read(path)]
    check_ids(predictions)
    return predictions


def uneven_systems(predictions: Iterable[Prediction]) -> str | None:
    """Return a note if systems differ in their documents, so that their means cannot be compared; None otherwise."""
    ids: dict[str | None, set[str]] = {}
    for prediction in predictions:
        ids.setdefault(prediction.system, set()).add(prediction.id)
    documents = set().union(*ids.values())
    lacking = [f"{system} {len(present):,}" for system, present in ids.items() if present != documents]
    if not lacking:
        return None
    return f"means are over different documents: of {len(documents):,} documents, {', '.join(lacking)}"
