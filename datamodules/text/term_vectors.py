"""Texts as vectors of term counts, and their cosines."""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from datamodules.text.rouge_words import vocabulary


def term_counts(texts: Sequence[Sequence[Hashable]]) -> NDArray:
    """Return the counts of terms in texts, [L, V] for L texts and the V terms that occur."""
    columns: dict[Hashable, int] = {}  # column of each term, in order of appearance
    text_of_term, column_of_term = [], []  # one entry for each occurrence of a term
    for text, terms in enumerate(texts):
        text_of_term += [text] * len(terms)
        column_of_term += [columns.setdefault(term, len(columns)) for term in terms]
    counts = np.zeros((len(texts), len(columns)))
    np.add.at(counts, (text_of_term, column_of_term), 1)  # counts repeated pairs, unlike `counts[...] += 1`
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
    """Return the similarities of TextRank between texts S_i and S_j, 0 on the diagonal, [L, V] -> [L, L].

    The similarity is the number of common terms over log |S_i| + log |S_j|, where |S_i| is the number of terms in S_i
    with repetition (Mihalcea and Tarau 2004); 0 for two texts of at most one term, whose logarithms are 0.
    """
    has_term = np.minimum(counts, 1)  # [L, V]
    common = has_term @ has_term.T  # [L, L]
    log_lengths = np.log(np.maximum(counts.sum(1), 1))  # [L]
    divisor = log_lengths[:, None] + log_lengths[None, :]  # [L, L]
    similarity = np.divide(common, divisor, out=np.zeros_like(common), where=divisor > 0)
    np.fill_diagonal(similarity, 0)
    return similarity


def cosines(vectors: NDArray) -> NDArray:
    """Return the cosines between the rows of a matrix, [L, V] -> [L, L]; 0 for a row of zeros."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    return unit @ unit.T


def pagerank(weights: NDArray, damping: float, tolerance: float = 1e-10) -> NDArray:
    """Return the stationary distribution of a random walk over a graph, [L, L] -> [L].

    It follows a link with probability `damping`; otherwise, or from a node without links, it jumps uniformly.
    """
    size = max(len(weights), 1)  # 1 for an empty graph, which has no ranks
    totals = weights.sum(1, keepdims=True)  # [L, 1]
    transitions = np.divide(weights, totals, out=np.full_like(weights, 1 / size), where=totals > 0)  # [L, L]
    ranks = np.full(len(weights), 1 / size)
    while True:  # ends, because each step shrinks the change of the ranks by the factor `damping`, or more
        updated = (1 - damping) / size + damping * ranks @ transitions
        if np.abs(updated - ranks).sum() < tolerance:  # power iteration has converged
            return updated
        ranks = updated
