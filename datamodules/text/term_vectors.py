"""Texts as vectors of term counts, and their cosines."""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray


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


def cosines(vectors: NDArray) -> NDArray:
    """Return the cosines between rows, [L, V] -> [L, L]; 0 where a row is zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    return unit @ unit.T
