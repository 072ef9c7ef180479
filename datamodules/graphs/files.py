"""Precomputed graphs from a file."""

from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from datamodules.corpora.readers import read_rows
from datamodules.documents import BadRecord, UserError
from datamodules.graphs.graph import ParagraphGraph
from datamodules.graphs.paragraphs import Paragraphs
from datamodules.text.hashing import file_digest


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

    name, symmetric = "file", False

    def __init__(self, path: Path, id: str = "id", weights: str = "weights") -> None:
        self.path, self.fields = Path(path), (id, weights)

    def settings(self) -> dict[str, Any]:
        if not self.path.is_file():
            raise UserError(f"{self.path}: no such file; check the path of the graphs")
        return {"file": file_digest(self.path), "fields": self.fields}

    def weights(self, paragraphs: Paragraphs) -> NDArray:
        if paragraphs.id not in self._rows:
            problem = f"no graph of document {paragraphs.id!r} in field {self.fields[0]!r}"
            raise UserError(f"{self.path}: {problem}; add it, or name the right field")
        return self._rows[paragraphs.id][1]

    def source(self, paragraphs: Paragraphs) -> str:
        """Return the file and the line of the document."""
        return f"{self.path}:{self._rows[paragraphs.id][0]}"

    @cached_property
    def _rows(self) -> dict[str, tuple[int, Any]]:
        """Line number and weights by document id."""
        rows: dict[str, tuple[int, Any]] = {}
        for number, row in read_rows(self.path, list(self.fields)):
            if isinstance(row, BadRecord):
                raise UserError(f"{row.where}: {row.problem}; fix it, every document needs a graph")
            missing = [field for field in self.fields if row.get(field) is None]
            if missing:
                raise UserError(f"{self.path}:{number}: it has no field {missing[0]!r}; name the right one")
            document = str(row[self.fields[0]])
            if document in rows:
                raise UserError(f"{self.path}:{number}: document {document!r} is also in line {rows[document][0]}")
            rows[document] = number, row[self.fields[1]]
        return rows
