"""Paragraphs about the same topics: latent Dirichlet allocation."""

import base64
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import psi

from datamodules.documents import CorpusError
from datamodules.graphs.graph import ParagraphGraph
from datamodules.graphs.paragraphs import Paragraphs
from datamodules.text.content_words import content_stems
from datamodules.text.term_vectors import cosines, term_counts

_EPSILON = 1e-12


class Topic(ParagraphGraph):
    """G[i][j] = how alike the topics of paragraphs i and j are (Li et al. 2020).

    The topics are learned from training paragraphs by scikit-learn's online variational LDA (Hoffman et al. 2010), over
    stems of the words that are no function words. What a paragraph is about follows by variational inference from
    these topics, see `mixtures`.

    Args:
        topics: how many, K.
        measure: `cosine` of two topic mixtures, or `hellinger`: 1 minus the Hellinger distance between them.
        max_terms: the most frequent terms that topics are made of; those in more than half of the paragraphs are none.
        max_paragraphs: of so many, drawn at random from the training documents, the topics are learned.
        passes: over them.
        seed: of the draw and of the topics' start.

    Raises:
        ValueError: if a number is below 1, or there is no such measure.
    """

    name = "topic"

    def __init__(
        self,
        topics: int = 20,
        measure: Literal["cosine", "hellinger"] = "cosine",
        max_terms: int = 5000,
        max_paragraphs: int = 10_000,
        passes: int = 5,
        seed: int = 0,
    ) -> None:
        if min(topics, max_terms, max_paragraphs, passes) < 1:
            given = f"{topics}, {max_terms}, {max_paragraphs}, {passes}"
            raise ValueError(f"topics, max_terms, max_paragraphs and passes are at least 1; got {given}")
        if measure not in ("cosine", "hellinger"):
            raise ValueError(f"measure {measure!r} is none of cosine, hellinger; choose one")
        self.topics, self.measure, self.max_terms = topics, measure, max_terms
        self.max_paragraphs, self.passes, self.seed = max_paragraphs, passes, seed
        self._columns: dict[str, int] = {}
        self._likely: NDArray | None = None  # exp(E[log p(term | topic)]), float32 [K, V]

    def settings(self) -> dict[str, Any]:
        names = ("topics", "measure", "max_terms", "max_paragraphs", "passes", "seed")
        return {name: getattr(self, name) for name in names}

    # Learning ----------------------------------------------------------------------------------------------------

    def fit(self, train: Iterable[Paragraphs]) -> None:
        """Learns the topics; the same paragraphs in the same order give the same."""
        texts = _drawn(train, self.max_paragraphs, random.Random(self.seed))
        found = Counter(term for terms in texts for term in set(terms))
        common = [term for term, count in found.most_common() if 1 < count <= max(2, len(texts) / 2)]
        self._columns = {term: column for column, term in enumerate(common[: self.max_terms])}
        self._likely = np.zeros((self.topics, 0), dtype=np.float32)
        if self._columns:
            self._likely = self._learned([terms for terms in texts if any(term in self._columns for term in terms)])

    def _learned(self, texts: list[list[str]]) -> NDArray:
        """exp(E[log p(term | topic)]) of the topics of some texts, [K, V]."""
        from scipy.sparse import csr_matrix
        from sklearn.decomposition import LatentDirichletAllocation  # both take seconds to load

        bags = [Counter(self._columns[term] for term in terms if term in self._columns) for terms in texts]
        ends = np.cumsum([0, *map(len, bags)])
        columns = [column for bag in bags for column in sorted(bag)]
        counts = [bag[column] for bag in bags for column in sorted(bag)]
        table = csr_matrix((counts, columns, ends), shape=(len(texts), len(self._columns)), dtype=np.float64)
        model = LatentDirichletAllocation(
            self.topics, learning_method="online", max_iter=self.passes, batch_size=256, random_state=self.seed
        )
        posterior = model.fit(table).components_  # Dirichlet parameters, [K, V]
        return np.exp(psi(posterior) - psi(posterior.sum(1, keepdims=True))).astype(np.float32)

    def state(self) -> dict[str, Any]:
        if self._likely is None:
            return {}
        content = base64.b64encode(np.ascontiguousarray(self._likely, "<f4").tobytes()).decode()
        return {"terms": list(self._columns), "topics": self.topics, "likely": content}

    def load_state(self, state: dict[str, Any]) -> None:
        """Takes up the topics that `state` gave.

        Raises:
            CorpusError: if they are those of other settings.
        """
        if state.get("topics") != self.topics:
            got = f"{state.get('topics', 'no')} topics where {self.topics} were asked for"
            raise CorpusError(f"the graph that was learned has {got}; give the settings of that run, or learn it anew")
        self._columns = {term: column for column, term in enumerate(state["terms"])}
        flat = np.frombuffer(base64.b64decode(state["likely"]), "<f4")
        self._likely = flat.reshape(self.topics, len(self._columns))

    # Using -------------------------------------------------------------------------------------------------------

    def mixtures(self, paragraphs: Paragraphs) -> NDArray:
        """p(topic | paragraph), the mean of the variational Dirichlet, [L, K]; uniform where no term is known.

        gamma_k = 1/K + sum_w n_w phi_wk  with  phi_wk ~ exp(psi(gamma_k) + E[log p(w | k)]), iterated from gamma = 1
        (Blei et al. 2003, with the prior 1/K of scikit-learn).

        Raises:
            CorpusError: if nothing was learned.
        """
        if self._likely is None:
            raise CorpusError(f"document {paragraphs.id!r}: there are no topics yet; call fit or load_state first")
        known = [[term for term in content_stems(" ".join(text)) if term in self._columns] for text in paragraphs.texts]
        columns = list(dict.fromkeys(self._columns[term] for terms in known for term in terms))  # as `term_counts` has
        gamma = inferred(term_counts(known), self._likely[:, columns].astype(np.float64))
        return gamma / gamma.sum(1, keepdims=True)

    def weights(self, paragraphs: Paragraphs) -> NDArray:
        mixtures = self.mixtures(paragraphs)
        if self.measure == "cosine":
            return cosines(mixtures)
        roots = np.sqrt(mixtures)
        return 1 - np.sqrt(np.maximum(0, 1 - roots @ roots.T))


def inferred(counts: NDArray, likely: NDArray, most: int = 100, tolerance: float = 1e-3) -> NDArray:
    """Dirichlet parameters gamma of the topics of texts.

    Args:
        counts: of terms, [L, V].
        likely: exp(E[log p(term | topic)]), [K, V].
        most: iterations.
        tolerance: mean change of a text's gamma below which it is done.

    Returns:
        gamma, [L, K].
    """
    topics = len(likely)
    gamma = np.ones((len(counts), topics))
    open_rows = np.arange(len(counts))
    for _ in range(most):
        before, bags = gamma[open_rows], counts[open_rows]
        weight = np.exp(psi(before) - psi(before.sum(1, keepdims=True)))  # [L', K]
        after = 1 / topics + weight * ((bags / (weight @ likely + _EPSILON)) @ likely.T)
        gamma[open_rows] = after
        open_rows = open_rows[np.abs(after - before).mean(1) >= tolerance]
        if not len(open_rows):
            break
    return gamma


def _drawn(train: Iterable[Paragraphs], most: int, rng: random.Random) -> list[list[str]]:
    """Terms of at most so many paragraphs, each as likely to be drawn as any other (Vitter 1985, algorithm R)."""
    drawn: list[list[str]] = []
    seen = 0
    for paragraphs in train:
        for text in paragraphs.texts:
            place = len(drawn) if len(drawn) < most else rng.randrange(seen + 1)
            if place < most:
                drawn[place : place + 1] = [list(text)]
            seen += 1
    return [content_stems(" ".join(text)) for text in drawn]
