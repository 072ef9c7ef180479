"""Graphs that somebody else made, from a file."""

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from datamodules.corpora.readers import read_rows
from datamodules.documents import BadRecord, CorpusError
from datamodules.graphs.graph import ParagraphGraph, Weights, checked
from datamodules.graphs.paragraphs import Paragraphs


class FromFile(ParagraphGraph):
    """Graphs from a file of one record a document: its `id` and `weights`, L lists of L numbers in [0, 1].

    L is the number of paragraphs that are kept of the document; weights between a paragraph and itself are ignored.
    The whole file is kept in memory.

    Args:
        path: JSON Lines or Parquet, plain or compressed.
        id: field with the document's id.
        weights: field with the weights.

    Raises:
        CorpusError: on reading, if the file is absent, a record is none, an id comes twice or is missing.
    """

    name, symmetric = "file", False

    def __init__(self, path: Path, id: str = "id", weights: str = "weights") -> None:
        self.path, self.fields = Path(path), (id, weights)

    def settings(self) -> dict[str, Any]:
        if not self.path.is_file():
            raise CorpusError(f"{self.path}: no such file; check the path of the graphs")
        with self.path.open("rb") as stream:
            return {"file": hashlib.file_digest(stream, "sha256").hexdigest(), "fields": self.fields}

    def weights(self, paragraphs: Paragraphs) -> NDArray:
        return self(paragraphs)

    def __call__(self, paragraphs: Paragraphs) -> Weights:
        """The file's graph of the document.

        Raises:
            CorpusError: if it has none, or one of another size or with values outside [0, 1]; with the line.
        """
        if paragraphs.id not in self._rows:
            problem = f"no graph of document {paragraphs.id!r} in field {self.fields[0]!r}"
            raise CorpusError(f"{self.path}: {problem}; add it, or name the right field")
        number, weights = self._rows[paragraphs.id]
        return checked(weights, paragraphs, f"{self.path}:{number}")

    @cached_property
    def _rows(self) -> dict[str, tuple[int, Any]]:
        """Line and weights of each document."""
        found: dict[str, tuple[int, Any]] = {}
        for number, row in read_rows(self.path, list(self.fields)):
            if isinstance(row, BadRecord):
                raise CorpusError(f"{row.where}: {row.problem}; mend it, every document needs its graph")
            lacking = [field for field in self.fields if row.get(field) is None]
            if lacking:
                raise CorpusError(f"{self.path}:{number}: it has no field {lacking[0]!r}; name the right one")
            document = str(row[self.fields[0]])
            if document in found:
                raise CorpusError(f"{self.path}:{number}: document {document!r} is in line {found[document][0]} too")
            found[document] = number, row[self.fields[1]]
        return found
