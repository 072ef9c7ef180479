"""Documents that occur in two splits of a corpus: equal texts, and near-duplicates by MinHash."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from datamodules.corpora.corpus import as_document
from datamodules.corpora.near_copies import clusters

if TYPE_CHECKING:
    from datasets import Dataset

Duplicates = Literal["exact", "near", "off"]
NEAR = 0.8  # smallest Jaccard similarity of word 5-grams of near-duplicates


class Overlap(NamedTuple):
    """A document that also occurs in an earlier split."""

    split: str
    id: str
    other_split: str
    other_id: str
    kind: Literal["exact", "near"]


def find_overlaps(splits: Mapping[str, "Dataset"], duplicates: Duplicates, num_proc: int = 1) -> list[Overlap]:
    """Find the documents of each split that occur in an earlier split, with the first match of each.

    Args:
        splits: tables of `build_documents` for each split, in order.
        duplicates: `exact` compares texts without case and white space; `near` also finds near-duplicates, which
            takes about a millisecond per document.
        num_proc: processes that compute MinHash signatures.
    """
    if duplicates == "off" or len(splits) < 2:
        return []
    sources = [(split, row["id"]) for split, table in splits.items() for row in table.select_columns("id")]
    texts = [" ".join(as_document(row).text.lower().split()) for table in splits.values() for row in table]
    if duplicates == "near":
        groups = clusters(texts, criteria=[texts], threshold=NEAR, num_proc=num_proc)
    else:
        groups = _equal(texts)
    overlaps = []
    for group in groups:
        first_equal: dict[str, int] = {}
        for index in group:  # ascending, so that the first of an earlier split comes first of all
            equal = first_equal.setdefault(texts[index], index)
            partner, kind = (equal, "exact") if sources[equal][0] != sources[index][0] else (group[0], "near")
            if sources[partner][0] != sources[index][0]:
                overlaps.append(Overlap(*sources[index], *sources[partner], kind))
    return overlaps


def _equal(texts: list[str]) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for index, text in enumerate(texts):
        groups.setdefault(text, []).append(index)
    return list(groups.values())
