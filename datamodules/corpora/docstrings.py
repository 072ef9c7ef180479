"""The embedded corpus: what the packages at hand say about themselves."""

import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from datamodules.corpora.corpus import Corpus
from datamodules.corpora.harvest import Docstring, digest_of, harvest, source_files
from datamodules.corpora.near_copies import clusters
from datamodules.documents import CorpusError, Record

# Raised whenever the same files would give other records.
_VERSION = 2
_SHARE, _AT_MOST = 0.05, 1000  # of val and of test


class Docstrings(Corpus):
    """Docstrings of the installed packages and the standard library: the first paragraph summarizes the others.

    The sources are parsed, never imported. Kept is what reads as prose, with 40 words or more behind a first paragraph
    of 3 to 60 words. Near-copies (see `near_copies.clusters`) and equal summaries stay in one split; `val` and
    `test` have a twentieth of the docstrings each, at most 1,000. The same packages give the same documents.

    Args:
        folders: where to look for `.py` files; by default where packages are installed, and the standard library.
        num_proc: processes that parse and compare; by default one a core, at most 8.
        max_words: leave out documents with more words, such as those that a parser would take long for; the others stay
            in their splits.

    Raises:
        CorpusError: if a folder is absent, or there is no docstring to be had.
    """

    def __init__(
        self, folders: list[str] | None = None, num_proc: int | None = None, max_words: int | None = None
    ) -> None:
        if max_words is not None and max_words < 1:
            raise CorpusError(f"Docstrings: max_words is at least 1, got {max_words}")
        paths = sysconfig.get_paths()
        places = folders if folders is not None else [paths["purelib"], paths["platlib"], paths["stdlib"]]
        self.folders = list(dict.fromkeys(Path(place).resolve() for place in places))
        self.num_proc = num_proc or min(8, os.cpu_count() or 1)
        self.max_words = max_words

    def splits(self) -> list[str]:
        return ["train", "val", "test"]

    def records(self, split: str) -> Iterator[Record]:
        for docstring in self._docstrings[split]:
            if self.max_words is None or len(" ".join(docstring.body).split()) <= self.max_words:
                yield Record(docstring.name, list(docstring.body), [docstring.summary], docstring.where)

    def fingerprint(self, split: str) -> str:
        limit = "" if self.max_words is None else f" {self.max_words} words"
        python = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
        return f"docstrings {_VERSION} {python} {split} {self._digest}{limit}"

    @cached_property
    def _files(self) -> list[tuple[str, Path]]:
        for folder in self.folders:
            if not folder.is_dir():
                raise CorpusError(f"{folder}: no such folder to look for docstrings in; give another in `folders`")
        return source_files(self.folders)

    @cached_property
    def _digest(self) -> str:
        return digest_of(self._files)

    @cached_property
    def _docstrings(self) -> dict[str, list[Docstring]]:
        return split_by_cluster(harvest(self._files, self.num_proc), self.num_proc)


def split_by_cluster(docstrings: list[Docstring], num_proc: int = 1) -> dict[str, list[Docstring]]:
    """Splits docstrings so that near-copies and equal summaries stay together.

    Clusters come in the order of a hash. One goes to `test` or `val` if there is room and it is not so large as to
    weigh on the scores there; all others go to `train`.
    """
    bodies = ["\n".join(docstring.body) for docstring in docstrings]
    summaries = [docstring.summary.lower().rstrip(".") for docstring in docstrings]
    room = min(_AT_MOST, round(_SHARE * len(docstrings)))
    splits: dict[str, list[Docstring]] = {"test": [], "val": [], "train": []}
    groups = clusters(bodies, [summaries, bodies], num_proc=num_proc)
    for members in sorted(groups, key=lambda group: _hash(docstrings[group[0]])):
        fits = (name for name in ("test", "val") if len(splits[name]) + len(members) <= room)
        small = len(members) <= max(1, room // 50)
        name = next(fits, "train") if small else "train"
        splits[name] += [docstrings[index] for index in members]
    return splits


def _hash(docstring: Docstring) -> bytes:
    text = "\n".join([docstring.name, docstring.summary, *docstring.body])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
