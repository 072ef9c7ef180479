"""Documents in memory: texts, or records."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from datamodules.corpora.corpus import Corpus
from datamodules.corpora.fields import Fields, Paragraphs
from datamodules.documents import BadRecord, Record
from datamodules.text.hashing import text_digest


class Records(Corpus):
    """Records in memory, in one split, `test`.

    Args:
        rows: mappings with `id`, `document` (a string or a list of parts) and, optionally, `summary`.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self.rows = [dict(row) for row in rows]
        self.fields = Fields()

    def splits(self) -> list[str]:
        return ["test"]

    def records(self, split: str) -> Iterator[Record | BadRecord]:
        for number, row in enumerate(self.rows, start=1):
            yield self.fields.record(row, f"record {number}", str(number))

    def fingerprint(self, split: str) -> str:
        content = json.dumps([self.rows, self.fields.paragraphs], sort_keys=True, default=str)
        return f"{type(self).__name__.lower()} {text_digest(content)}"


class Texts(Records):
    """Texts to summarize, in one split, `test`, without references.

    Args:
        texts: pairs of id and text.
        paragraphs: separator of paragraphs: `blank_line`, `line` or `none`.
    """

    def __init__(self, texts: Iterable[tuple[str, str]], paragraphs: Paragraphs = "blank_line") -> None:
        super().__init__({"id": name, "document": text} for name, text in texts)
        self.fields = Fields(summary=None, paragraphs=paragraphs)

    def records(self, split: str) -> Iterator[Record | BadRecord]:
        for row in self.rows:
            yield self.fields.record(row, f"text {row['id']!r}", row["id"])
