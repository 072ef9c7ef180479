"""Corpora: sources of documents.

Classes are imported on first use, so that the readers of files load without `datasets` and torch.
"""

from datamodules.lazy_import import lazy_classes

__all__, __getattr__ = lazy_classes(__name__, {
    "Corpus": "datamodules.corpora.corpus",
    "Docstrings": "datamodules.corpora.docstrings",
    "Files": "datamodules.corpora.files",
    "Folds": "datamodules.corpora.derived",
    "Hub": "datamodules.corpora.hub",
    "Modules": "datamodules.corpora.docstrings",
    "OwnSentences": "datamodules.corpora.derived",
    "ParallelText": "datamodules.corpora.texts",
    "TextFolders": "datamodules.corpora.texts",
    "Texts": "datamodules.corpora.texts",
})  # fmt: skip
