"""Clusters of near-duplicate texts by MinHash, to keep near-duplicates in one split."""

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from datamodules.corpora.parallel import mapper

if TYPE_CHECKING:
    from datasketch import LeanMinHash  # imports SciPy, which only comparisons need

_NGRAM = 5
_PERMUTATIONS = 128
_THRESHOLD = 0.5  # smallest similarity of near-duplicates
_BUCKET = 100  # texts of a bucket that later ones are compared with; thousands of copies of a page would take hours


def shingles(text: str) -> set[str]:
    """Return the word 5-grams of a text without case and punctuation; the whole text if it is shorter."""
    words = re.findall(r"\w+", text.lower())
    return {" ".join(words[i : i + _NGRAM]) for i in range(max(1, len(words) - _NGRAM + 1))}


def clusters(texts: Sequence[str], criteria: Iterable[Sequence[Hashable]] = (), num_proc: int = 1) -> list[list[int]]:
    """Cluster texts so that near-duplicates are in the same cluster.

    Args:
        texts: texts to compare by the Jaccard similarity of their shingles, as estimated by MinHash; from 0.5 on, they
            are near-duplicates.
        criteria: further criteria, each a sequence with a key for each text; texts with equal keys share a cluster.

    Returns:
        Clusters as ascending indices, ordered by their first index; a text without near-duplicates is a cluster.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pairs = list(_similar(texts, num_proc))
    for keys in criteria:
        first_index: dict[Hashable, int] = {}
        pairs += [(first_index.setdefault(key, index), index) for index, key in enumerate(keys)]
    first, second = zip(*pairs) if pairs else ((), ())
    shape = (len(texts), len(texts))
    _, labels = connected_components(coo_array((np.ones(len(pairs)), (first, second)), shape), directed=False)
    groups: dict[int, list[int]] = defaultdict(list)
    for index, label in enumerate(labels):
        groups[label].append(index)
    return list(groups.values())


def _similar(texts: Sequence[str], num_proc: int) -> Iterable[tuple[int, int]]:
    """Yield pairs whose signatures agree in at least a fraction `_THRESHOLD` of their values.

    Pairs are searched among the texts that share a bucket of locality-sensitive hashing; a text is compared with the
    first 100 of a bucket, so that time is linear in the number of texts.
    """
    from datasketch import MinHashLSH

    with mapper(num_proc, chunksize=256) as mapped:
        signatures = list(mapped(_signature, texts))
    bands = MinHashLSH(_THRESHOLD, _PERMUTATIONS).hashranges
    buckets: dict[tuple[int, bytes], list[int]] = defaultdict(list)
    for number, signature in enumerate(signatures):
        text_buckets = [buckets[start, signature.hashvalues[start:end].tobytes()] for start, end in bands]
        for candidate in sorted(set().union(*text_buckets)):
            if signature.jaccard(signatures[candidate]) >= _THRESHOLD:
                yield candidate, number
        for bucket in text_buckets:
            if len(bucket) < _BUCKET:
                bucket.append(number)


def _signature(text: str) -> "LeanMinHash":
    from datasketch import LeanMinHash, MinHash

    signature = MinHash(_PERMUTATIONS)
    signature.update_batch([shingle.encode() for shingle in shingles(text)])
    return LeanMinHash(signature)
