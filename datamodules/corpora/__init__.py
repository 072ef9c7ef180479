"""Where documents come from."""

from datamodules.corpora.corpus import Corpus
from datamodules.corpora.docstrings import Docstrings
from datamodules.corpora.files import Files
from datamodules.corpora.hub import Hub
from datamodules.corpora.mixed_articles import MixedArticles
from datamodules.corpora.modules import Modules
from datamodules.corpora.own_sentences import OwnSentences
from datamodules.corpora.planted_duplicates import PlantedDuplicates
from datamodules.corpora.planted_enumerations import PlantedEnumerations
from datamodules.corpora.planted_keys import PlantedKeys
from datamodules.corpora.planted_names import PlantedNames
from datamodules.corpora.planted_trees import PlantedTrees
from datamodules.corpora.texts import Texts

__all__ = [
    "Corpus",
    "Docstrings",
    "Files",
    "Hub",
    "MixedArticles",
    "Modules",
    "OwnSentences",
    "PlantedDuplicates",
    "PlantedEnumerations",
    "PlantedKeys",
    "PlantedNames",
    "PlantedTrees",
    "Texts",
]
