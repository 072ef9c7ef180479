"""Where documents come from.

Classes are imported on first use, so that the readers of files load without `datasets` and torch.
"""

from importlib import import_module
from typing import Any

_CLASSES = {
    "Corpus": "datamodules.corpora.corpus",
    "Docstrings": "datamodules.corpora.docstrings",
    "Files": "datamodules.corpora.files",
    "Hub": "datamodules.corpora.hub",
    "MixedArticles": "datamodules.corpora.mixed_articles",
    "Modules": "datamodules.corpora.modules",
    "OwnSentences": "datamodules.corpora.own_sentences",
    "PlantedDuplicates": "datamodules.corpora.planted_duplicates",
    "PlantedEnumerations": "datamodules.corpora.planted_enumerations",
    "PlantedKeys": "datamodules.corpora.planted_keys",
    "PlantedNames": "datamodules.corpora.planted_names",
    "PlantedTrees": "datamodules.corpora.planted_trees",
    "Texts": "datamodules.corpora.texts",
}

__all__ = list(_CLASSES)


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_CLASSES[name]), name)
