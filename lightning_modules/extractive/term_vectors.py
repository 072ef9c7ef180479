"""Term counts and tf-idf vectors of the sentences of a document."""

import numpy as np
from numpy.typing import NDArray

from datamodules.documents import Document
from lightning_modules.metrics.rouge_words import vocabulary

Matrix = NDArray[np.float64]


def term_counts(document: Document) -> Matrix:
    """Count the stems of each sentence, [L, V] for L sentences and V stems of the document."""
    words = vocabulary()
    words.bound()
    sentences = [words.encode(sentence) for sentence in document.sentences]
    columns = {token: column for column, token in enumerate(sorted({t for sentence in sentences for t in sentence}))}
    counts = np.zeros((len(sentences), len(columns)))
    for row, sentence in enumerate(sentences):
        np.add.at(counts[row], [columns[token] for token in sentence], 1)
    return counts


def tf_idf(document: Document) -> Matrix:
    """Weight counts by tf x log(L / number of sentences with the stem), [L, V]."""
    counts = term_counts(document)
    return counts * np.log(len(counts) / np.maximum((counts > 0).sum(0), 1))


def cosine_matrix(vectors: Matrix) -> Matrix:
    """Cosines between rows, [L, V] -> [L, L]; 0 where a row is zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    return unit @ unit.T
