"""Term counts and tf-idf vectors of the sentences of a document."""

import numpy as np
from numpy.typing import NDArray

from datamodules.documents import Document
from datamodules.text import term_vectors
from datamodules.text.rouge_words import vocabulary

Matrix = NDArray[np.float64]


def term_counts(document: Document, language: str = "en") -> Matrix:
    """Count the stems of each sentence, [L, V] for L sentences and V stems of the document."""
    words = vocabulary(language=language)
    words.limit_size()  # before encoding: it may clear the vocabulary
    return term_vectors.term_counts([words.encode(sentence) for sentence in document.sentences])


def tf_idf(document: Document, language: str = "en") -> Matrix:
    """Weight counts by tf x log(L / number of sentences with the stem), [L, V]."""
    return term_vectors.tf_idf(term_counts(document, language))
