"""Base class of graphs over the paragraphs of a document, validation of their weights, and graphs from a file."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.corpora.readers import read_rows
from datamodules.documents import BadRecord, Document, UserError
from datamodules.graphs.paragraphs import Paragraphs
from datamodules.text.hashing import file_digest, text_digest

Weights = NDArray[np.float32]

# Part of the cache key: increase it when the same settings give other weights.
VERSION = 2
_TOLERANCE = 1e-5  # largest rounding error outside [0, 1], and between weights that should be equal


class ParagraphGraph(ABC):
    """Base class of graphs: weights G between the L paragraphs of a document.

    A subclass defines `weights`, and `settings` if it has any; a graph that learns from training documents also defines
    `fit`, `state` and `load_state`.
    """

    name: str = ""  # part of the cache key
    symmetric: bool = True  # whether G[i][j] = G[j][i]; if true, this is validated
    language: str = "en"  # of the documents, set by the DataModule

    @abstractmethod
    def weights(self, paragraphs: Paragraphs) -> NDArray:
        """Return G [L, L] in [0, 1]; the caller sets the diagonal to 1."""

    def settings(self) -> dict[str, Any]:
        """Return plain values that the weights depend on, besides the paragraphs and the learned state."""
        return {}

    def fit(self, train: Iterable[Paragraphs]) -> None:  # noqa: B027 (optional)
        """Learn from the training documents; does nothing by default."""

    def state(self) -> dict[str, Any]:
        """Return the learned state as plain JSON values, by default empty."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Restore the learned state from `state`."""

    def prepare(self, documents: Sequence[Document]) -> None:  # noqa: B027
        """Compute and cache the inputs of the weights of documents, such as discourse parses."""

    def digest(self) -> str:
        """Return the digest of all that weights depend on, except the paragraphs: part of a cache key."""
        inputs = [VERSION, type(self).__qualname__, self.name, self.settings(), self.state()]
        return text_digest(json.dumps(inputs, sort_keys=True, default=str))[:24]  # 96 bits are enough to be unique

    def __call__(self, paragraphs: Paragraphs) -> Weights:
        """Return the weights G between paragraphs, [L, L], float32 in [0, 1], 1 on the diagonal.

        Raises:
            UserError: if the shape is wrong, a weight is outside [0, 1], or a graph that is declared symmetric is not;
                the message says where the weights come from (`source`) and the id of the document.
        """
        return _validated(self.weights(paragraphs), paragraphs, self.source(paragraphs), self.symmetric)

    def source(self, paragraphs: Paragraphs) -> str:
        """Return where the weights of a document come from, for messages."""
        return type(self).__name__


def _validated(weights: Any, paragraphs: Paragraphs, source: str, symmetric: bool) -> Weights:
    """Return weights of L paragraphs as float32 [L, L] in [0, 1], 1 on the diagonal; raise UserError if invalid."""
    where = f"{source}: document {paragraphs.id!r}"  # `source` is the class of the graph, or file and line
    size = len(paragraphs)
    try:
        graph = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):  # such as lists of different lengths in a file
        raise UserError(f"{where}: its graph is not a table of numbers; give L lists of L numbers") from None
    if graph.shape != (size, size):
        shape = " x ".join(map(str, graph.shape)) or "a single number"
        remedy = f"give one row and one column for each of its {size} paragraphs after truncation"
        raise UserError(f"{where}: its graph is {shape}, not {size} x {size}; {remedy}")
    np.fill_diagonal(graph, 1)  # before the checks, since weights on the diagonal are ignored
    invalid = np.argwhere(~((graph >= -_TOLERANCE) & (graph <= 1 + _TOLERANCE)))  # this form also rejects NaN
    if len(invalid):
        i, j = invalid[0]
        value = f"{graph[i, j]:g} between paragraphs {i} and {j}"
        raise UserError(f"{where}: weight {value} (counted from 0) is not in [0, 1]; scale the weights")
    asymmetric = np.argwhere(np.abs(graph - graph.T) > _TOLERANCE)
    if symmetric and len(asymmetric):
        i, j = asymmetric[0]
        values = f"{graph[i, j]:g} from {i} to {j}, {graph[j, i]:g} back"
        raise UserError(f"{where}: its graph must be symmetric, but has {values}; fix it, or set symmetric = False")
    if symmetric:
        graph = (graph + graph.T) / 2  # removes rounding errors
    return graph.clip(0, 1).astype(np.float32)


class NoGraph(ParagraphGraph):
    """Graph with all weights 1, which leaves attention unchanged."""

    name = "none"

    def weights(self, paragraphs: Paragraphs) -> NDArray:
        return np.ones((len(paragraphs), len(paragraphs)))


class Identity(ParagraphGraph):
    """Graph in which each paragraph is related only to itself, for comparison."""

    name = "identity"

    def weights(self, paragraphs: Paragraphs) -> NDArray:
        return np.eye(len(paragraphs))


class FromFile(ParagraphGraph):
    """Graphs from a file with one record per document: `id` and `weights`, L lists of L numbers in [0, 1].

    L is the number of paragraphs of the document after truncation; diagonal weights are ignored. The whole file is kept
    in memory.

    Args:
        path: JSON Lines or Parquet, plain or compressed.
        id: field with the id of the document.
        weights: field with the weights.

    Raises:
        UserError: on reading, if the file is missing, a record is invalid, or an id is missing or not unique.
    """

    name = "file"
    symmetric = False

    def __init__(self, path: Path, id: str = "id", weights: str = "weights") -> None:
        self.path = Path(path)
        self.fields = (id, weights)

    def settings(self) -> dict[str, Any]:
        if not self.path.is_file():
            raise UserError(f"{self.path}: no such file; check the path of the graphs")
        return {"file": file_digest(self.path), "fields": self.fields}

    def weights(self, paragraphs: Paragraphs) -> NDArray:
        if paragraphs.id not in self._rows:
            problem = f"no graph of document {paragraphs.id!r} in field {self.fields[0]!r}"
            raise UserError(f"{self.path}: {problem}; add it, or name the right field")
        return self._rows[paragraphs.id][1]  # (line number, weights)

    def source(self, paragraphs: Paragraphs) -> str:
        """Return the file and the line of the document."""
        return f"{self.path}:{self._rows[paragraphs.id][0]}"  # (line number, weights)

    @cached_property
    def _rows(self) -> dict[str, tuple[int, Any]]:
        """Line number and weights of each document by its id, read on first use."""
        id_field, weights_field = self.fields
        rows: dict[str, tuple[int, Any]] = {}
        for number, record in read_rows(self.path, list(self.fields)):
            if isinstance(record, BadRecord):
                raise UserError(f"{record.where}: {record.problem}; fix it, every document needs a graph")
            missing = [field for field in self.fields if record.get(field) is None]
            if missing:
                raise UserError(f"{self.path}:{number}: it has no field {missing[0]!r}; name the right one")
            id = str(record[id_field])
            if id in rows:
                raise UserError(f"{self.path}:{number}: document {id!r} is also in line {rows[id][0]}")
            rows[id] = number, record[weights_field]
        return rows
