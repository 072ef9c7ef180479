"""Untrained baselines: lead, random, oracle, TextRank, LexRank, MMR and zero-shot extraction.

Each baseline maps a document to the indices of at most k of its sentences, in the document's order; `predictions` makes
records of them in the suite's format. If a document has fewer sentences, all are selected.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.documents import Document
from datamodules.text.oracle import greedy_oracle
from datamodules.text.term_vectors import common_terms, cosines, pagerank, stem_counts, tf_idf


def lead(document: Document, k: int = 3) -> list[int]:
    """Return the first k sentences."""
    return list(range(min(_at_least_one(k), len(document.sentences))))


def random_k(document: Document, k: int = 3, seed: int = 0) -> list[int]:
    """Select k random sentences without replacement; the choice depends only on the seed and the document's id."""
    size = len(document.sentences)
    return sorted(random.Random(f"{seed} {document.id}").sample(range(size), min(_at_least_one(k), size)))


def oracle(document: Document, k: int | None = None, stem: bool | str = True, language: str = "en") -> list[int]:
    """Return the greedy extractive oracle: at each step, it adds the sentence that raises ROUGE-1 F + ROUGE-2 F most.

    It stops at k sentences, or when none raises the score. `stem`: True for Porter, "perl" for ROUGE-1.5.5's, or False.
    """
    if not document.references:
        raise ValueError(f"document {document.id}: the oracle needs a reference")
    limit = None if k is None else _at_least_one(k)
    return greedy_oracle(document.sentences, document.references, limit, stem, language=language)


def textrank(document: Document, k: int = 3, damping: float = 0.85, language: str = "en") -> list[int]:
    """Return the k sentences with the highest TextRank: PageRank over shared stems (Mihalcea and Tarau 2004)."""
    similarity = common_terms(stem_counts(document.sentences, language))
    return _highest(pagerank(similarity, damping), k)


def lexrank(
    document: Document, k: int = 3, threshold: float | None = 0.1, damping: float = 0.85, language: str = "en"
) -> list[int]:
    """Return the k sentences with the highest LexRank: PageRank over similar sentences (Erkan and Radev 2004).

    Inverse document frequencies are computed from the sentences of the document, not from a corpus as in the paper.

    Args:
        threshold: cosine above which two sentences are linked; None weights links by the cosine (continuous LexRank).
        damping: probability of following a link; the paper's d is 1 - damping = 0.15.
    """
    return _highest(lexrank_scores(document.sentences, threshold, damping, language), k)


def lexrank_scores(
    sentences: Sequence[str], threshold: float | None = 0.1, damping: float = 0.85, language: str = "en"
) -> NDArray[np.float64]:
    """Return the LexRank of L sentences, [L]: PageRank over links by the cosine of tf-idf; arguments: `lexrank`."""
    similarity = cosines(tf_idf(stem_counts(sentences, language)))
    links = similarity if threshold is None else (similarity > threshold) * 1.0  # a sentence is linked to itself, too
    return pagerank(links, damping)


def mmr(document: Document, k: int = 3, trade_off: float = 0.7, language: str = "en") -> list[int]:
    """Select by maximal marginal relevance (Carbonell and Goldstein 1998) over tf-idf, with the document as the query.

    Each step selects the sentence s with the highest λ cos(s, D) - (1 - λ) max_t cos(s, t), for the document D and
    selected sentences t. The `trade_off` λ is in [0, 1]; 1 for relevance only.
    """
    return zero_shot(document, k, selector="mmr", trade_off=trade_off, language=language)


def zero_shot(
    document: Document,
    k: int = 3,
    encoder: str = "tfidf",
    encoding: str = "joint",
    pooling: str = "mean",
    scoring: str = "document_cosine",
    selector: str = "top_k",
    mmr_form: str = "classic",
    trade_off: float = 0.7,
    language: str = "en",
) -> list[int]:
    """Select by similarity of sentence vectors (of an encoder or tf-idf); see `ZeroShot` and `SelectionOptions`."""
    from lightning_modules.extractive.selection import SelectionOptions  # imports torch, slowly

    options = SelectionOptions(selector, _at_least_one(k), mmr_form, trade_off)
    extractor = _extractor(encoder, encoding, pooling, scoring)
    extractor.language = language  # set here, as one cached encoder serves all languages
    return extractor.extract([document], options)[0]


@cache
def _extractor(*settings: str):
    """Return a `ZeroShot` extractor with these arguments, whose encoder is loaded once for all documents."""
    from lightning_modules.extractive.zero_shot import ZeroShot

    return ZeroShot(*settings)


BASELINES: dict[str, Callable[..., list[int]]] = {
    "lead": lead, "random": random_k, "oracle": oracle, "textrank": textrank, "lexrank": lexrank, "mmr": mmr,
    "zero_shot": zero_shot,
}  # fmt: skip


def predictions(documents: Iterable[Document], baseline: str, **options: Any) -> Iterator[dict[str, Any]]:
    """Yield records of predictions.jsonl with the summaries of a baseline, one of `BASELINES`, and its `options`."""
    for document in documents:
        summary = [document.sentences[index] for index in BASELINES[baseline](document, **options)]
        yield {"id": document.id, "summary": summary, "references": document.references}


def _at_least_one(k: int) -> int:
    if k < 1:
        raise ValueError(f"a summary has at least one sentence; got k = {k}")
    return k


def _highest(scores: NDArray[np.float64], k: int) -> list[int]:
    """Return the indices of the k highest scores, in ascending order; scores equal to 9 decimals: the first ones."""
    by_score = np.argsort(-np.round(scores, 9), kind="stable")
    return sorted(by_score[: _at_least_one(k)].tolist())
