"""Texts as vectors of term counts, and their cosines."""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from datamodules.text.rouge_words import vocabulary


def term_counts(texts: Sequence[Sequence[Hashable]]) -> NDArray:
    """Return the counts of terms in texts, [L, V] for L texts and the V terms that occur."""
    columns: dict[Hashable, int] = {}
    rows, column_of_term = [], []
    for row, terms in enumerate(texts):
        rows += [row] * len(terms)
        column_of_term += [columns.setdefault(term, len(columns)) for term in terms]
    counts = np.zeros((len(texts), len(columns)))
    np.add.at(counts, (rows, column_of_term), 1)
    return counts


def stem_counts(sentences: Sequence[str], language: str = "en") -> NDArray:
    """Return the counts of stems in sentences, [L, V]."""
    stems = vocabulary(language=language)
    stems.limit_size()  # before encoding: it may clear the vocabulary
    return term_counts([stems.encode(sentence) for sentence in sentences])


def tf_idf(counts: NDArray) -> NDArray:
    """Weight counts by tf x log(L / number of texts with the term), [L, V]."""
    return counts * np.log(len(counts) / np.maximum((counts > 0).sum(0), 1))


def common_terms(counts: NDArray) -> NDArray:
    """Return the similarities of TextRank between texts, 0 with themselves, [L, V] -> [L, L].

    They are the number of terms in common over log |S_i| + log |S_j|, with lengths in terms (Mihalcea and Tarau 2004).
    """
    present, logs = np.minimum(counts, 1), np.log(np.maximum(counts.sum(1), 1))
    common, log_product = present @ present.T, logs[:, None] + logs[None, :]
    similarity = np.divide(common, log_product, out=np.zeros_like(common), where=log_product > 0)
    np.fill_diagonal(similarity, 0)
    return similarity


def cosines(vectors: NDArray) -> NDArray:
    """Return the cosines between rows, [L, V] -> [L, L]; 0 where a row is zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    return unit @ unit.T


def pagerank(weights: NDArray, damping: float, tolerance: float = 1e-10) -> NDArray:
    """Return the stationary distribution of a random walk, [L, L] -> [L]; rows without links jump uniformly."""
    size = len(weights)
    totals = weights.sum(1, keepdims=True)
    steps = np.divide(weights, totals, out=np.full_like(weights, 1 / max(size, 1)), where=totals > 0)
    ranks = np.full(size, 1 / max(size, 1))
    while True:  # the change shrinks by the damping at every step
        moved = (1 - damping) / max(size, 1) + damping * ranks @ steps
        if np.abs(moved - ranks).sum() < tolerance:
            return moved
        ranks = moved
