"""Graphs of cosines between paragraphs: of tf-idf vectors, and of topics by latent Dirichlet allocation (LDA)."""

import base64
import random
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from datamodules.documents import UserError
from datamodules.graphs.graph import ParagraphGraph
from datamodules.graphs.paragraphs import Paragraphs
from datamodules.text.content_words import content_stems
from datamodules.text.term_vectors import cosines, term_counts

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


class Similarity(ParagraphGraph):
    """G[i][j] = cosine of the tf-idf vectors of paragraphs i and j (Li et al. 2020).

    Terms are the stems of content words. The weight of a term is tf (1 + ln((1 + L) / (1 + df))): tf is its count in
    the paragraph, df the number of the L paragraphs of the document that contain it. No statistics of the corpus are
    used. A paragraph without terms has similarity 0 to all others.

    Args:
        scaled: divide by the largest weight between two different paragraphs of the document. Cosines of short
            paragraphs are small (0.08 on average for pairs of sentences of a news article), so that unscaled, the bias
            of attention, -(1 - G)^2 / (2 sigma^2), is nearly the same for all pairs.
    """

    name = "similarity"

    def __init__(self, scaled: bool = False) -> None:
        self.scaled = scaled

    def settings(self) -> dict[str, Any]:
        return {"scaled": True} if self.scaled else {}  # empty if false, as in caches of earlier versions

    def weights(self, paragraphs: Paragraphs) -> NDArray:
        counts = term_counts([content_stems(" ".join(text), self.language) for text in paragraphs.texts])  # [L, V]
        num_paragraphs = len(counts)
        idf = 1 + np.log((1 + num_paragraphs) / (1 + (counts > 0).sum(0)))  # of V terms, [V]
        weights = cosines(counts * idf)  # [L, L]
        if self.scaled:
            np.fill_diagonal(weights, 0)  # excluded from the maximum
            largest = weights.max(initial=0)
            if largest > 0:  # some two paragraphs share a term
                weights = weights / largest
            np.fill_diagonal(weights, 1)
        return weights


class PermutedSimilarity(Similarity):
    """Similarity graph with randomly permuted paragraphs: the same weights, between the wrong paragraphs.

    The permutation depends only on the id of the document.

    Args:
        scaled: see `Similarity`.
    """

    name = "permuted similarity"

    def __init__(self, scaled: bool = True) -> None:
        super().__init__(scaled)

    def weights(self, paragraphs: Paragraphs) -> NDArray:
        weights = super().weights(paragraphs)
        order = list(range(len(weights)))
        random.Random(paragraphs.id).shuffle(order)
        return weights[np.ix_(order, order)]


class Topic(ParagraphGraph):
    """G[i][j] = cosine of the topic mixtures of paragraphs i and j (Li et al. 2020).

    Topics are learned from training paragraphs by the online variational LDA of scikit-learn (Hoffman et al. 2010),
    over the stems of content words. Variational inference of LDA gives the mixture of a paragraph.

    Args:
        topics: number of topics K.
        max_terms: maximum number of terms, the most frequent, without those in one or in over half of the paragraphs.
        max_paragraphs: number of random training paragraphs to learn from.
        passes: number of passes over them.
        seed: seed of the random choice and of the initial topics.

    Raises:
        ValueError: if a number is below 1.
    """

    name = "topic"

    def __init__(
        self, topics: int = 20, max_terms: int = 5000, max_paragraphs: int = 10_000, passes: int = 5, seed: int = 0
    ) -> None:
        if min(topics, max_terms, max_paragraphs, passes) < 1:
            values = f"{topics}, {max_terms}, {max_paragraphs}, {passes}"
            raise ValueError(f"topics, max_terms, max_paragraphs and passes must be at least 1; got {values}")
        self.topics = topics
        self.max_terms = max_terms
        self.max_paragraphs = max_paragraphs
        self.passes = passes
        self.seed = seed
        self._columns: dict[str, int] = {}  # term -> its column in matrices with V terms; empty before `fit`
        self._term_weights: NDArray | None = None  # exp(E[log p(term | topic)]), float32 [K, V]

    def settings(self) -> dict[str, Any]:
        names = ("topics", "max_terms", "max_paragraphs", "passes", "seed")
        return {name: getattr(self, name) for name in names}

    def fit(self, train: Iterable[Paragraphs]) -> None:
        """Learn the topics, deterministically for the same paragraphs in the same order."""
        from sklearn.decomposition import LatentDirichletAllocation  # takes seconds to load

        texts = _sample_paragraphs(train, self.max_paragraphs, random.Random(self.seed), self.language)  # terms of each
        # Number of paragraphs with each term. `dict.fromkeys` removes duplicates in the order of the text: the order of
        # a set differs between processes and would decide between terms of equal frequency.
        frequencies = Counter(term for terms in texts for term in dict.fromkeys(terms))
        max_frequency = max(2, len(texts) / 2)  # more common terms say little; at least 2, for tiny samples
        common = [term for term, count in frequencies.most_common() if 1 < count <= max_frequency]
        self._columns = {term: column for column, term in enumerate(common[: self.max_terms])}
        self._term_weights = np.zeros((self.topics, 0), dtype=np.float32)  # [K, V], V = 0 if no term is known
        if self._columns:
            with_known_terms = [terms for terms in texts if any(term in self._columns for term in terms)]
            options = {"learning_method": "online", "max_iter": self.passes, "batch_size": 256}
            model = LatentDirichletAllocation(self.topics, random_state=self.seed, **options)
            self._term_weights = model.fit(self._counts(with_known_terms)).exp_dirichlet_component_.astype(np.float32)

    def _counts(self, texts: list[list[str]]) -> "csr_matrix":
        """Return the counts of the V known terms in each of N texts, lists of terms, sparse [N, V]."""
        from sklearn.feature_extraction.text import CountVectorizer

        return CountVectorizer(analyzer=list, vocabulary=self._columns, dtype=np.float64).transform(texts)

    def state(self) -> dict[str, Any]:
        """Return the topics as JSON values, with the weights as base64 of little-endian float32; {} before `fit`."""
        if self._term_weights is None:
            return {}
        content = base64.b64encode(np.ascontiguousarray(self._term_weights, "<f4").tobytes()).decode()
        return {"terms": list(self._columns), "topics": self.topics, "likely": content}  # "likely": weights

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore the topics from a `state`; raise UserError if it is empty or has another number of topics."""
        if state.get("topics") != self.topics:
            problem = f"the saved graph has {state.get('topics', 'no')} topics, not {self.topics}"
            raise UserError(f"{problem}; give the settings of that run, or learn it again")
        self._columns = {term: column for column, term in enumerate(state["terms"])}
        weights = np.frombuffer(base64.b64decode(state["likely"]), "<f4")  # the term weights
        self._term_weights = weights.reshape(self.topics, len(self._columns))  # [K, V]

    def mixtures(self, paragraphs: Paragraphs) -> NDArray:
        """Return p(topic | paragraph), the mean of the variational Dirichlet, [L, K]; uniform without known terms.

        gamma_k = 1/K + sum_w n_w phi_wk  with  phi_wk ~ exp(psi(gamma_k) + E[log p(w | k)]), iterated from gamma = 1
        n_w: count of term w; gamma: Dirichlet parameters; psi: digamma (Blei et al. 2003, prior 1/K of scikit-learn).

        Raises:
            UserError: if nothing was learned.
        """
        if self._term_weights is None:
            raise UserError(f"document {paragraphs.id!r}: there are no topics yet; call fit or load_state first")
        if not self._columns:
            return np.full((len(paragraphs), self.topics), 1 / self.topics)
        from sklearn.decomposition import LatentDirichletAllocation

        model = LatentDirichletAllocation(self.topics)
        # Set as by `fit`: `transform` reads exp(E[log p(term | topic)]), and of `components_` only the data type.
        model.components_ = model.exp_dirichlet_component_ = self._term_weights.astype(np.float64)
        model.doc_topic_prior_ = 1 / self.topics
        terms = [content_stems(" ".join(text), self.language) for text in paragraphs.texts]
        return model.transform(self._counts(terms))

    def weights(self, paragraphs: Paragraphs) -> NDArray:
        return cosines(self.mixtures(paragraphs))


def _sample_paragraphs(train: Iterable[Paragraphs], size: int, rng: random.Random, language: str) -> list[list[str]]:
    """Sample `size` paragraphs uniformly (reservoir sampling, Vitter 1985, algorithm R), and return their terms."""
    reservoir: list[list[str]] = []
    num_read = 0
    for paragraphs in train:
        for text in paragraphs.texts:
            num_read += 1
            if len(reservoir) < size:
                reservoir.append(text)
            elif (index := rng.randrange(num_read)) < size:  # with probability size / num_read
                reservoir[index] = text
    return [content_stems(" ".join(text), language) for text in reservoir]
