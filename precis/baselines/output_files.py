"""Output files of a baseline: predictions, and how they were made."""

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from callbacks.results_path import results_path
from datamodules.atomic_write import atomic_file, atomic_write
from datamodules.documents import Document
from datamodules.text.lines import json_line
from precis.summarizing.prompts import sentences_of

NAMED = 3  # documents that a message names


def write_predictions(
    path: Path,
    documents: Iterable[Document],
    text_of: Callable[[str], str],
    record: Mapping[str, Any],
    language: str = "en",
) -> None:
    """Write `NAME.jsonl` and `NAME.results.json`.

    Args:
        path: `NAME.jsonl`.
        documents: documents in the order in which they are written.
        text_of: function from the id of a document to its summary.
        record: split, number of documents, settings, counts and signature.
        language: code of the language, which divides summaries into sentences.
    """
    with atomic_file(path) as file:
        for document in documents:
            summary = sentences_of(text_of(document.id), language)
            file.write(json_line({"id": document.id, "summary": summary, "references": document.references}))
    command = shlex.join(["precis", *sys.argv[1:]])
    results = {"command": command, **record, "predictions": path.name}
    atomic_write(results_path(path), json.dumps(results, ensure_ascii=False, indent=1) + "\n")


def signature(system: str, settings: Mapping[str, Any]) -> str:
    """Return one line that says how summaries were made: `hf|checkpoint:...|num_beams:4|...|precis:0.1.0`."""
    parts = [f"{name}:{value}" for name, value in settings.items() if value is not None]
    try:
        parts.append(f"precis:{metadata.version('precis-suite')}")
    except metadata.PackageNotFoundError:  # run from a source tree that was never installed
        parts.append("precis:source")
    return "|".join([system, *parts])


def name_documents(ids: Iterable[str], what: str) -> str | None:
    """Return `empty summaries (2): a, b`; None without ids."""
    ids = list(ids)
    more = ", ..." if len(ids) > NAMED else ""
    return f"{what} ({len(ids):,}): {', '.join(ids[:NAMED])}{more}" if ids else None
