"""Counts of truncation by the limits of a DataModule, for each document and split, and a one-line report.

`SummarizationData.encode` counts tokens, sentences and parts of a document before and after truncation. The counts are
cached with the features, so that sums over a split are computed from one column.
"""

import csv
import io
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from datamodules.documents import Document
from datamodules.text.lines import counted

if TYPE_CHECKING:
    import datasets  # imported when documents are read: models only need the types of batches

TRUNCATION = "truncation"  # column of the features
Counts = dict[str, list[int]]  # counts of a document: name -> [read, total]


@dataclass
class TruncationRow:
    """Truncation of the documents of a split by one limit."""

    split: str  # name of the split
    counted: str  # unit that is counted, such as `source tokens`
    limit: str  # option with its value
    documents: int  # number of documents
    documents_cut: int  # number of truncated documents
    total: int  # number of units in all documents
    left_out: int  # number of units that are not read
    examples: str  # ids of the first truncated documents, at most three

    @property
    def share(self) -> float:
        """Fraction of units that are not read, in [0, 1]."""
        return self.left_out / self.total if self.total else 0.0


def text_limits(max_source: int | None, max_target: int | None = None) -> dict[str, str]:
    """Return the option that limits each count of `count_source` and, with a `max_target`, of `truncate_target`."""
    source = "no limit" if max_source is None else f"data.max_source {max_source}"
    limits = dict.fromkeys(("source_tokens", "source_sentences", "source_paragraphs"), source)
    return limits if max_target is None else limits | {"target_tokens": f"data.max_target {max_target}"}


def truncate_target(tokens: list[int], max_target: int, stop: int) -> tuple[list[int], Counts]:
    """Return at most `max_target` tokens of a summary, including the end symbol `stop`, and counts without `stop`."""
    truncated = tokens[: max_target - 1]
    return [*truncated, stop], {"target_tokens": [len(truncated), len(tokens)]}


def count_source(document: Document, tokens_read: int, tokens: int, sentences_read: int) -> Counts:
    """Return numbers [read, total] of tokens, sentences, paragraphs; a paragraph is read if all its sentences are."""
    sizes = [len(part) for part in document.parts]  # sentences of each paragraph, or source document
    return {
        "source_tokens": [tokens_read, tokens],
        "source_sentences": [sentences_read, sum(sizes)],
        "source_paragraphs": [whole_units(sizes, sentences_read), len(sizes)],
    }


def whole_units(sizes: Sequence[int], length: int) -> int:
    """Return how many consecutive units, such as sentences of `sizes` words, end within the first `length` words."""
    return bisect_right(list(accumulate(sizes)), length)


def sentences_read(document: Document, offsets: Sequence[tuple[int, int]], tokens_read: int) -> int:
    """Return the number of complete sentences within the first tokens of a document.

    `offsets` are (start, end) of all tokens in characters of `Document.text`.
    """
    if tokens_read >= len(offsets):
        return len(document.sentences)
    characters_read = max((end for _, end in offsets[:tokens_read]), default=0)  # (0, 0) for special tokens
    return bisect_right(document.sentence_ends, characters_read)  # sentences that end up to there


def truncation_rows(split: str, features: "datasets.Dataset", limits: Mapping[str, str]) -> list[TruncationRow]:
    """Sum the counts [read, total] of the documents of a split: one row for each of `limits`, see `text_limits`."""
    counts = features.select_columns([TRUNCATION]).with_format("arrow")[:][TRUNCATION]  # a struct for each document
    rows = []
    for name, limit in limits.items():  # a count, such as `source_tokens`, and the option that limits it
        pairs = pc.struct_field(counts, name)  # [read, total] of each document
        read = pc.list_element(pairs, 0).to_numpy()
        total = pc.list_element(pairs, 1).to_numpy()
        truncated = np.flatnonzero(read < total)
        row = TruncationRow(
            split=split,
            counted=name.replace("_", " "),
            limit=limit,
            documents=len(features),
            documents_cut=len(truncated),
            total=int(total.sum()),
            left_out=int((total - read).sum()),
            examples=" ".join(features[int(index)]["id"] for index in truncated[:3]),
        )
        rows.append(row)
    return rows


def truncation_line(rows: Sequence[TruncationRow]) -> str | None:
    """Return a report of a split in one line, rows grouped by the option that truncates; None if nothing is cut."""
    parts = []
    for limit in dict.fromkeys(row.limit for row in rows if row.left_out):  # each once, in order
        rows_of_limit = [row for row in rows if row.limit == limit and row.left_out]
        shares = ", ".join(f"{100 * row.share:.1f} % of {row.counted}" for row in rows_of_limit)
        documents_cut = max(row.documents_cut for row in rows_of_limit)  # by the unit cut in most of them
        parts.append(f"{shares} in {counted(documents_cut, 'document')} ({limit})")
    if not parts:
        return None
    return f"{rows[0].split}, {counted(rows[0].documents, 'document')}, cut off: {'; '.join(parts)}"


def to_csv(rows: Sequence[TruncationRow]) -> str:
    """Return rows as CSV with a header."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*(field.name for field in fields(TruncationRow)), "share"])
    writer.writerows([*astuple(row), f"{row.share:.4f}"] for row in rows)
    return file.getvalue()


def from_csv(text: str) -> list[TruncationRow]:
    """Parse the rows of `to_csv`; the column `share` is computed again."""
    types = {field.name: field.type for field in fields(TruncationRow)}  # `str` or `int`
    rows = []
    for row in csv.DictReader(io.StringIO(text)):
        rows.append(TruncationRow(**{name: convert(row[name]) for name, convert in types.items()}))
    return rows
