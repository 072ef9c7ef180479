"""What a graph over the paragraphs of a document is: weights in [0, 1], checked."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.documents import CorpusError, Document
from datamodules.graphs.paragraphs import Paragraphs

Weights = NDArray[np.float32]

# Raised whenever the same settings would give other weights: it is part of the cache's key.
VERSION = 1
_ROUNDING = 1e-5  # by which a computed weight may leave [0, 1], and two that should be equal differ


class ParagraphGraph(ABC):
    """How much the paragraphs of a document have to do with each other.

    A graph of your own says its `weights`, and its `settings` if it has any; what it learns from training documents
    goes through `fit`, `state` and `load_state`.

    Attributes:
        name: for people, and part of the cache's key.
        symmetric: whether G[i][j] = G[j][i]; checked where it is said.
    """

    name: str = ""
    symmetric: bool = True

    @abstractmethod
    def weights(self, paragraphs: Paragraphs) -> NDArray:
        """G [L, L] in [0, 1]; the diagonal is set to 1 by who asks."""

    def settings(self) -> dict[str, Any]:
        """Plain values that the weights depend on beside the paragraphs and what was learned."""
        return {}

    def fit(self, train: Iterable[Paragraphs]) -> None:  # noqa: B027 (nothing to do is an answer)
        """Learns from the training documents; most graphs have nothing to learn."""

    def state(self) -> dict[str, Any]:
        """What was learned, as plain values (JSON); empty if there is nothing to learn."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Takes up what `state` gave."""

    def prepare(self, documents: Sequence[Document]) -> None:  # noqa: B027
        """Makes what the weights of these documents need and a cache lacks: discourse parses, for one."""

    def digest(self) -> str:
        """What identifies the weights of given paragraphs: for the key of a cache."""
        given = [VERSION, type(self).__qualname__, self.name, self.settings(), self.state()]
        return hashlib.sha256(json.dumps(given, sort_keys=True, default=str).encode()).hexdigest()[:24]

    def __call__(self, paragraphs: Paragraphs) -> Weights:
        """G [L, L], float32 in [0, 1], 1 on the diagonal.

        Raises:
            CorpusError: if `weights` gives no such array; with the document's id.
        """
        return checked(self.weights(paragraphs), paragraphs, f"{type(self).__name__}", self.symmetric)


def checked(weights: Any, paragraphs: Paragraphs, source: str, symmetric: bool = False) -> Weights:
    """The same weights as float32, values beyond [0, 1] by rounding cut off, 1 on the diagonal.

    Args:
        weights: what somebody says are G [L, L].
        paragraphs: whose graph it is.
        source: who says so: a file and line, or a class.
        symmetric: whether it has to be.

    Raises:
        CorpusError: if it has another size, is not in [0, 1], or not symmetric; with the document's id.
    """
    where, size = f"{source}: document {paragraphs.id!r}", len(paragraphs)
    try:
        found = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise CorpusError(f"{where}: its graph is no table of numbers; give L lists of L numbers") from None
    if found.shape != (size, size):
        shape = " x ".join(map(str, found.shape)) or "a single number"
        remedy = f"give one row and column for each of its {size} paragraphs that are kept"
        raise CorpusError(f"{where}: its graph is {shape}, not {size} x {size}; {remedy}")
    np.fill_diagonal(found, 1)
    # so written, NaN is wrong too
    wrong = np.argwhere(~((found >= -_ROUNDING) & (found <= 1 + _ROUNDING)))
    if len(wrong):
        i, j = wrong[0]
        value = f"{found[i, j]:g} between paragraphs {i} and {j}"
        raise CorpusError(f"{where}: weight {value} (counted from 0) is not in [0, 1]; scale the weights")
    if symmetric and (np.abs(found - found.T) > _ROUNDING).any():
        i, j = np.argwhere(np.abs(found - found.T) > _ROUNDING)[0]
        values = f"{found[i, j]:g} from {i} to {j}, {found[j, i]:g} back"
        raise CorpusError(f"{where}: its graph is to be symmetric, but has {values}; mend it, or set symmetric = False")
    if symmetric:
        found = (found + found.T) / 2
    return found.clip(0, 1).astype(np.float32)


class NoGraph(ParagraphGraph):
    """All paragraphs are fully related: weights of 1, with which attention is plain."""

    name = "none"

    def weights(self, paragraphs: Paragraphs) -> NDArray:
        return np.ones((len(paragraphs), len(paragraphs)))
