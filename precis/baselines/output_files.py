"""Output files of a baseline: predictions, and how they were made."""

import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from callbacks.results_path import results_path
from datamodules.atomic_write import atomic_file, atomic_write
from datamodules.corpora.corpus import as_document
from datamodules.text.lines import counted, json_line
from precis.summarizing.prompts import sentences_of

if TYPE_CHECKING:
    from datasets import Dataset

NAMED = 3  # documents that a message names


def write_predictions(
    path: Path,
    documents: "Dataset",
    texts: Mapping[str, str],
    record: Mapping[str, Any],
    notes: Iterable[str | None],
    language: str = "en",
) -> None:
    """Write `NAME.jsonl` and `NAME.results.json`, and print how many summaries there are, notes and the signature.

    Args:
        path: `NAME.jsonl`.
        documents: documents in the order in which they are written.
        texts: summaries by the id of their document, empty where there is none.
        record: split, settings, counts and signature.
        notes: what a user should know about the summaries.
        language: code of the language, which divides summaries into sentences.
    """
    with atomic_file(path) as file:
        for document in map(as_document, documents):
            summary = sentences_of(texts.get(document.id, ""), language)
            file.write(json_line({"id": document.id, "summary": summary, "references": document.references}))
    command = shlex.join(["precis", *sys.argv[1:]])
    results = {"command": command, "documents": len(documents), **record, "predictions": path.name}
    atomic_write(results_path(path), json.dumps(results, ensure_ascii=False, indent=1) + "\n")
    print(written_line(record["settings"]["system"], len(documents), path))
    print(*filter(None, notes), record["signature"], sep="\n")


def written_line(system: str, count: int, path: Path) -> str:
    """Return the line on the summaries of a baseline in a file."""
    return f"{system}: {counted(count, 'summary')} in {path}; score them with precis evaluate {path}"


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
