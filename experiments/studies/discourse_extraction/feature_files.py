"""Cached features of documents: parsing and encoding take minutes, training takes seconds."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

from datamodules.discourse.parses import DiscourseParse
from datamodules.text.hashing import text_digest
from experiments.studies.discourse_extraction.documents import SentenceFeatures, SummarizedDocument

_FIELDS = ("vectors", "places", "target")
_OF_PARSE = ("edus", "tree", "ldd", "gamma")


def features_digest(documents: Sequence[SummarizedDocument], settings: Sequence[object]) -> str:
    """Return a digest of what features depend on: the documents, and settings that can be written as JSON."""
    texts = [[row.document.id, row.document.text, *row.summaries] for row in documents]
    return text_digest(json.dumps([texts, *settings]))


def stored_features(
    path: Path, documents: Sequence[SummarizedDocument], digest: str, compute: Callable[[], list[SentenceFeatures]]
) -> list[SentenceFeatures]:
    """Return features from a file; they are computed and written if there is no file with this digest.

    Args:
        path: path of the file.
        documents: documents to compute features of.
        digest: see `features_digest`.
        compute: function that computes the features.
    """
    if path.is_file():
        with safe_open(path, "pt") as file:
            if file.metadata()["digest"] == digest:
                return [_read(file, number, row) for number, row in enumerate(documents)]
    features = compute()
    tensors = {}
    for number, row in enumerate(features):
        tensors |= {f"{number}.{field}": getattr(row, field) for field in _FIELDS}
        for name, parse in row.structures.items():
            tensors |= {f"{number}.{name}.{field}": getattr(parse, field) for field in _OF_PARSE}
    structures = features[0].structures
    relations = json.dumps(next(iter(structures.values())).relations)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    save_file(tensors, part, {"digest": digest, "relations": relations, "structures": json.dumps([*structures])})
    part.rename(path)
    return features


def _read(file: safe_open, number: int, row: SummarizedDocument) -> SentenceFeatures:
    fields = {field: file.get_tensor(f"{number}.{field}") for field in _FIELDS}
    relations = tuple(json.loads(file.metadata()["relations"]))
    structures = {}
    for name in json.loads(file.metadata()["structures"]):
        tensors = {field: file.get_tensor(f"{number}.{name}.{field}") for field in _OF_PARSE}
        structures[name] = DiscourseParse(
            id=row.document.id, text_digest=text_digest(row.document.text), relations=relations, rows="side", **tensors
        )
    return SentenceFeatures(**fields, structures=structures)
