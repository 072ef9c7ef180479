"""The built-in corpus: docstrings of the packages that the suite requires."""

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
from datamodules.documents import Record, UserError

# The packages that are read by default: those that every installation of the suite has and that have many docstrings.
# Packages of extras are left out, so that the corpus does not depend on what else is installed.
PACKAGES = frozenset({
    "datasets", "huggingface_hub", "lightning_fabric", "matplotlib", "networkx", "nltk", "numpy", "pandas",
    "pytorch_lightning", "rich", "scipy", "sklearn", "sympy", "torch", "torchmetrics", "transformers", "wandb",
})  # fmt: skip

# Increase it when the same files give other records.
_VERSION = 2
_EVAL_SHARE, _MAX_EVAL = 0.05, 1000  # size of val and of test


class Docstrings(Corpus):
    """Docstrings of Python packages, whose first paragraph summarizes the others.

    Sources are parsed, never imported. A docstring is kept if it is prose, its first paragraph has 3 to 60 words and
    the rest at least 40. Near-copies (see `near_copies.clusters`) and equal summaries stay in one split; `val` and
    `test` have 5 % of the docstrings each, at most 1,000. The same versions of the packages give the same documents.

    Args:
        folders: folders with `.py` files; by default the standard library and the packages of `PACKAGES`.
        num_proc: number of processes that parse and compare; by default the number of cores, at most 8.
        max_words: leave out documents with more words, for example for slow parsers; the others keep their split.
        packages: names of the installed packages that are read beside the standard library; by default `PACKAGES`.

    Raises:
        UserError: if a folder does not exist, a package is not among `PACKAGES`, or there is no usable docstring.
    """

    def __init__(
        self,
        folders: list[str] | None = None,
        num_proc: int | None = None,
        max_words: int | None = None,
        packages: list[str] | None = None,
    ) -> None:
        if folders is not None and packages is not None:
            raise UserError("Docstrings: set `folders` or `packages`, not both")
        if unknown := set(packages or ()) - PACKAGES:
            raise UserError(f"Docstrings: packages must be among {sorted(PACKAGES)}, got {sorted(unknown)}")
        if max_words is not None and max_words < 1:
            raise UserError(f"Docstrings: max_words must be at least 1, got {max_words}")
        self.folders = None if folders is None else _distinct_paths(*folders)
        self.packages = PACKAGES if packages is None else frozenset(packages)
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
        if self.folders is None:
            paths = sysconfig.get_paths()
            required = source_files(_distinct_paths(paths["purelib"], paths["platlib"]), self.packages)
            return sorted(required + source_files([Path(paths["stdlib"])]))
        for folder in self.folders:
            if not folder.is_dir():
                raise UserError(f"{folder}: no such folder; give folders with Python files in `folders`")
        return source_files(self.folders)

    @cached_property
    def _digest(self) -> str:
        return digest_of(self._files)

    @cached_property
    def _docstrings(self) -> dict[str, list[Docstring]]:
        return split_by_cluster(harvest(self._files, self.num_proc), self.num_proc)


def split_by_cluster(docstrings: list[Docstring], num_proc: int = 1) -> dict[str, list[Docstring]]:
    """Split docstrings so that near-copies and equal summaries stay in the same split.

    Clusters are assigned in the order of a hash: to `test` or `val` while there is room, unless they are large enough
    to dominate the scores; otherwise to `train`.
    """
    bodies = ["\n".join(docstring.body) for docstring in docstrings]
    summaries = [docstring.summary.lower().rstrip(".") for docstring in docstrings]
    max_size = min(_MAX_EVAL, round(_EVAL_SHARE * len(docstrings)))
    splits: dict[str, list[Docstring]] = {"test": [], "val": [], "train": []}
    groups = clusters(bodies, [summaries, bodies], num_proc=num_proc)
    for members in sorted(groups, key=lambda group: _hash(docstrings[group[0]])):
        fits = (name for name in ("test", "val") if len(splits[name]) + len(members) <= max_size)
        is_small = len(members) <= max(1, max_size // 50)
        name = next(fits, "train") if is_small else "train"
        splits[name] += [docstrings[index] for index in members]
    return splits


def _distinct_paths(*paths: str) -> list[Path]:
    return list(dict.fromkeys(Path(path).resolve() for path in paths))


def _hash(docstring: Docstring) -> bytes:
    text = "\n".join([docstring.name, docstring.summary, *docstring.body])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
