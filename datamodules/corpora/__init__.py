"""Where documents come from."""

from datamodules.corpora.corpus import Corpus
from datamodules.corpora.docstrings import Docstrings
from datamodules.corpora.files import Files
from datamodules.corpora.hub import Hub
from datamodules.corpora.modules import Modules
from datamodules.corpora.own_sentences import OwnSentences
from datamodules.corpora.texts import Texts

__all__ = ["Corpus", "Docstrings", "Files", "Hub", "Modules", "OwnSentences", "Texts"]
