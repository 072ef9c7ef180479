"""The embedded corpus for summaries of several texts: what a module says of its functions, and of itself."""

from functools import cached_property

from datamodules.corpora.docstrings import Docstrings, split_by_cluster
from datamodules.corpora.harvest import Docstring, harvest_modules


class Modules(Docstrings):
    """The docstring of a module summarizes those of its functions, classes and methods: a part of the document each.

    A part begins with the name ("Parser.read: ...") and has the docstring's prose. Kept are modules with three such
    parts or more whose own docstring begins with a paragraph of 3 to 60 words, the summary. Otherwise as `Docstrings`:
    sources are parsed and not imported, near-copies stay in one split.

    Args:
        folders: where to look for `.py` files; by default where packages are installed, and the standard library.
        num_proc: processes that parse and compare; by default one a core, at most 8.
        max_words: leave out documents with more words; the others stay in their splits.

    Raises:
        CorpusError: if a folder is absent, or there is no such module to be had.
    """

    def fingerprint(self, split: str) -> str:
        return f"modules 1 {super().fingerprint(split)}"

    @cached_property
    def _docstrings(self) -> dict[str, list[Docstring]]:
        return split_by_cluster(harvest_modules(self._files, self.num_proc), self.num_proc)
