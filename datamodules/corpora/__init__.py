"""Corpora: sources of documents.

Classes are imported on first use, so that the readers of files load without `datasets` and torch.
"""

from datamodules.lazy_import import lazy_classes

__all__, __getattr__ = lazy_classes(__name__, {
    "Corpus": "datamodules.corpora.corpus",
    "Docstrings": "datamodules.corpora.docstrings",
    "Files": "datamodules.corpora.files",
    "Folds": "datamodules.corpora.folds",
    "Hub": "datamodules.corpora.hub",
    "Modules": "datamodules.corpora.modules",
    "OwnSentences": "datamodules.corpora.own_sentences",
    "ParallelText": "datamodules.corpora.parallel_text",
    "TextFolders": "datamodules.corpora.text_folders",
    "Texts": "datamodules.corpora.texts",
})  # fmt: skip
