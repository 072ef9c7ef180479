"""Texts as vectors of term counts, and their cosines."""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from datamodules.text.rouge_words import vocabulary


def term_counts(texts: Sequence[Sequence[Hashable]]) -> NDArray:
    """Return the counts of terms in texts, [L, V] for L texts and the V distinct terms in them."""
    columns: dict[Hashable, int] = {}  # column of each term, in order of appearance
    text_of_term, column_of_term = [], []  # one entry for each occurrence of a term
    for text, terms in enumerate(texts):
        text_of_term += [text] * len(terms)
        column_of_term += [columns.setdefault(term, len(columns)) for term in terms]
    counts = np.zeros((len(texts), len(columns)))
    np.add.at(counts, (text_of_term, column_of_term), 1)  # counts repeated pairs, unlike `counts[...] += 1`
    return counts


def stem_counts(sentences: Sequence[str], language: str = "en") -> NDArray:
    """Return the counts of V word stems in L sentences, [L, V]."""
    stems = vocabulary(language=language)
    return term_counts([stems.encode(sentence) for sentence in sentences])


def tf_idf(counts: NDArray) -> NDArray:
    """Weight the counts of V terms in L texts (tf) by log(L / number of texts with the term) (idf), [L, V]."""
    return counts * np.log(len(counts) / np.maximum((counts > 0).sum(0), 1))


def common_terms(counts: NDArray) -> NDArray:
    """Return the similarities of TextRank between L texts from counts of V terms, 0 on the diagonal, [L, V] -> [L, L].

    For texts S_i and S_j it is the number of common distinct terms over log |S_i| + log |S_j|, where |S| counts terms
    with repetition (Mihalcea and Tarau 2004); 0 for two texts of at most one term, whose logarithms are 0.
    """
    has_term = np.minimum(counts, 1)  # 1 for terms of a text, [L, V]
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
    """Return the stationary distribution of a random walk over L nodes, [L], from weights of links i -> j, [L, L].

    The walk follows a link with probability `damping`; otherwise, or from a node without links, it jumps uniformly.
    A `ValueError` if `damping` is negative or not below 1.
    """
    if not 0 <= damping < 1:  # with 1 a walk may alternate for ever
        raise ValueError(f"damping is at least 0 and below 1; got {damping}")
    size = max(len(weights), 1)  # 1 for an empty graph, to divide by it
    totals = weights.sum(1, keepdims=True)  # [L, 1]
    transitions = np.divide(weights, totals, out=np.full_like(weights, 1 / size), where=totals > 0)  # [L, L]
    ranks = np.full(len(weights), 1 / size)
    while True:  # ends, because each step multiplies the change of the ranks by at most `damping`
        updated = (1 - damping) / size + damping * ranks @ transitions
        if np.abs(updated - ranks).sum() < tolerance:  # power iteration has converged
            return updated
        ranks = updated
