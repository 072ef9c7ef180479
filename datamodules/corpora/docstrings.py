"""The built-in corpora: docstrings of the packages that the suite requires, split so that near-copies stay together."""

import os
import re
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from datamodules.corpora.corpus import Corpus
from datamodules.corpora.harvest import (
    Docstring,
    digest_of,
    docstring_of_module,
    docstrings_of_file,
    harvest,
    source_files,
)
from datamodules.corpora.parallel import mapper
from datamodules.documents import Record, UserError
from datamodules.text.hashing import text_digest

if TYPE_CHECKING:
    from datasketch import LeanMinHash  # imports SciPy, which only comparisons need

_NGRAM = 5  # words of a shingle
_PERMUTATIONS = 128  # values of a MinHash signature; the standard error of a similarity of 0.5 is 0.04
_THRESHOLD = 0.5  # smallest similarity of near-duplicates
_BUCKET = 100  # texts of a bucket that later ones are compared with; thousands of copies of a page would take hours
_CHUNK = 256  # texts sent to a process at once, because a signature is quick to compute


def shingles(text: str) -> set[str]:
    """Return the word 5-grams of a text without case and punctuation; a shorter text is one shingle."""
    words = re.findall(r"\w+", text.lower())
    return {" ".join(words[i : i + _NGRAM]) for i in range(max(1, len(words) - _NGRAM + 1))}


def clusters(texts: Sequence[str], criteria: Iterable[Sequence[Hashable]] = (), num_proc: int = 1) -> list[list[int]]:
    """Return clusters of texts, near-duplicates together: lists of ascending indices, ordered by their first index.

    Args:
        texts: texts to compare by the Jaccard similarity of their word 5-grams (`shingles`), which MinHash estimates on
            `num_proc` processes; two texts are near-duplicates from 0.5 on.
        criteria: further criteria, each a sequence with a key for each text; texts with equal keys share a cluster.
    """
    from scipy.cluster.hierarchy import DisjointSet

    groups = DisjointSet(range(len(texts)))
    for first, second in _similar_pairs(texts, num_proc):
        groups.merge(first, second)
    for keys in criteria:  # each text is merged with the first one of the same key
        first_index: dict[Hashable, int] = {}
        for index, key in enumerate(keys):
            groups.merge(first_index.setdefault(key, index), index)
    return sorted(sorted(group) for group in groups.subsets())


def _similar_pairs(texts: Sequence[str], num_proc: int) -> Iterable[tuple[int, int]]:
    """Yield index pairs (i, j), i < j, of near-duplicates; only texts in a common bucket of an LSH are compared."""
    from datasketch import MinHashLSH  # locality-sensitive hashing: a bucket has the texts that agree in a band

    with mapper(num_proc, chunksize=_CHUNK) as map_in_processes:
        signatures = list(map_in_processes(_signature, texts))
    bands = MinHashLSH(_THRESHOLD, _PERMUTATIONS).hashranges  # (start, end) of each band, a section of a signature
    buckets: dict[tuple[int, bytes], list[int]] = defaultdict(list)  # (start, values of the band) -> indices of texts
    for index, signature in enumerate(signatures):
        text_buckets = [buckets[start, signature.hashvalues[start:end].tobytes()] for start, end in bands]
        for candidate in sorted(set().union(*text_buckets)):  # earlier texts
            if signature.jaccard(signatures[candidate]) >= _THRESHOLD:  # estimated similarity of the sets of 5-grams
                yield candidate, index
        for bucket in text_buckets:
            if len(bucket) < _BUCKET:  # a later text is compared with all in the bucket: a limit saves time
                bucket.append(index)


def _signature(text: str) -> "LeanMinHash":
    """Return the MinHash signature of the shingles of a text, as an object that is small to send between processes."""
    from datasketch import LeanMinHash, MinHash

    signature = MinHash(_PERMUTATIONS)
    signature.update_batch([shingle.encode() for shingle in shingles(text)])
    return LeanMinHash(signature)


# The packages that are read by default: those that every installation of the suite has and that have many docstrings.
# Packages of extras are left out, so that the corpus does not depend on what else is installed.
PACKAGES = frozenset({
    "datasets", "huggingface_hub", "lightning_fabric", "matplotlib", "networkx", "nltk", "numpy", "pandas",
    "pytorch_lightning", "rich", "scipy", "sklearn", "sympy", "torch", "torchmetrics", "transformers", "wandb",
})  # fmt: skip

# Increase it when the same files give other records.
_VERSION = 2
_EVAL_SHARE, _MAX_EVAL = 0.05, 1000  # size of val and of test: fraction of the docstrings, and maximum number
_CLUSTER_DIVISOR = 50  # a cluster of more than 1/50 of val or test would dominate the scores, and goes to train


class Docstrings(Corpus):
    """Docstrings of Python packages, whose first paragraph summarizes the others.

    Sources are parsed, never imported. A docstring is kept if it is prose, its first paragraph has 3 to 60 words and
    the rest at least 40. Near-copies (see `clusters`) and equal summaries stay in one split; `val` and
    `test` have 5 % of the docstrings each, at most 1,000. The same versions of the packages give the same documents.

    Args:
        folders: folders with `.py` files; by default the standard library and the packages of `PACKAGES`.
        num_proc: number of processes that parse and compare; by default the number of cores, at most 8.
        max_words: leave out documents with more words, for slow discourse parsers; the others keep their split.
        packages: names of the installed packages that are read beside the standard library; by default `PACKAGES`.

    Raises:
        UserError: if a folder does not exist, a package is not among `PACKAGES`, or there is no usable docstring.
    """

    read_file = staticmethod(docstrings_of_file)  # returns the documents of one file; `Modules` has another function

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

    def fingerprint(self, split: str) -> str:  # identifies content and arguments, for the cache key
        limit = "" if self.max_words is None else f" {self.max_words} words"
        python = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
        return f"docstrings {_VERSION} {python} {split} {self._digest}{limit}"

    @cached_property
    def _files(self) -> list[tuple[str, Path]]:
        """Name (path relative to the folder that is searched) and path of each Python file to read, sorted."""
        if self.folders is None:
            paths = sysconfig.get_paths()  # `purelib` and `platlib`: site-packages; `stdlib`: standard library
            installed = source_files(_distinct_paths(paths["purelib"], paths["platlib"]), self.packages)  # (name, path)
            return sorted(installed + source_files([Path(paths["stdlib"])]))
        for folder in self.folders:
            if not folder.is_dir():
                raise UserError(f"{folder}: no such folder; give folders with Python files in `folders`")
        return source_files(self.folders)

    @cached_property
    def _digest(self) -> str:  # of the names and contents of all files
        return digest_of(self._files)

    @cached_property
    def _docstrings(self) -> dict[str, list[Docstring]]:  # by split
        return split_by_cluster(harvest(self._files, self.num_proc, self.read_file), self.num_proc)


def split_by_cluster(docstrings: list[Docstring], num_proc: int = 1) -> dict[str, list[Docstring]]:
    """Return the docstrings of `train`, `val` and `test`; near-copies and equal summaries stay in the same split.

    Clusters are visited in the order of a hash: a random order, but the same on every machine. A cluster of at most
    `max_members` goes to `test`, or else to `val`, if the split has room for it. All others go to `train`.
    """
    bodies = ["\n".join(docstring.body) for docstring in docstrings]
    summaries = [docstring.summary.lower().rstrip(".") for docstring in docstrings]
    max_size = min(_MAX_EVAL, round(_EVAL_SHARE * len(docstrings)))  # of val and of test
    max_members = max(1, max_size // _CLUSTER_DIVISOR)  # 1/50 of val or test, so that no cluster dominates it
    splits: dict[str, list[Docstring]] = {"test": [], "val": [], "train": []}
    groups = clusters(bodies, [summaries, bodies], num_proc=num_proc)  # similar bodies, equal summaries or bodies
    hashes = [text_digest("\n".join([docstring.name, docstring.summary, *docstring.body])) for docstring in docstrings]
    for members in sorted(groups, key=lambda group: hashes[group[0]]):  # by the hash of the first docstring
        with_room = [name for name in ("test", "val") if len(splits[name]) + len(members) <= max_size]
        split = with_room[0] if with_room and len(members) <= max_members else "train"
        splits[split] += [docstrings[index] for index in members]
    return splits


def _distinct_paths(*paths: str) -> list[Path]:  # `purelib` and `platlib` are usually one folder
    return list(dict.fromkeys(Path(path).resolve() for path in paths))


class Modules(Docstrings):
    """Modules as documents: each part is the docstring of a definition, the summary is the docstring of the module.

    A part begins with the name ("Parser.read: ..."). A module is kept if it has at least three parts, and its docstring
    begins with a paragraph of 3 to 60 words, the summary. Otherwise like `Docstrings`: sources are parsed,
    not imported, and near-copies stay in one split.

    Args:
        folders: folders with `.py` files; by default those of `Docstrings`.
        num_proc, max_words: as in `Docstrings`.

    Raises:
        UserError: if a folder does not exist, or has no usable module.
    """

    read_file = staticmethod(docstring_of_module)

    def fingerprint(self, split: str) -> str:  # identifies content and arguments, for the cache key
        return f"modules 1 {super().fingerprint(split)}"  # 1: version of this class
