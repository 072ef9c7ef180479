"""The built-in corpus for multi-document summarization: docstrings of modules and of their definitions."""

from functools import cached_property

from datamodules.corpora.docstrings import Docstrings, split_by_cluster
from datamodules.corpora.harvest import Docstring, harvest_modules


class Modules(Docstrings):
    """Modules as documents: each part is the docstring of a definition, the summary is the docstring of the module.

    A part begins with the name ("Parser.read: ..."). A module is kept if it has at least three parts, and its docstring
    begins with a paragraph of 3 to 60 words, the summary. Otherwise like `Docstrings`: sources are parsed,
    not imported, and near-copies stay in one split.

    Args:
        folders: folders with `.py` files; by default those of `Docstrings`.
        num_proc: number of processes that parse and compare; by default the number of cores, at most 8.
        max_words: leave out documents with more words; the others keep their split.

    Raises:
        UserError: if a folder does not exist, or has no usable module.
    """

    def fingerprint(self, split: str) -> str:
        return f"modules 1 {super().fingerprint(split)}"

    @cached_property
    def _docstrings(self) -> dict[str, list[Docstring]]:
        return split_by_cluster(harvest_modules(self._files, self.num_proc), self.num_proc)
