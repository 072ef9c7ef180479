"""Right-branching baseline trees."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from datamodules.discourse.records import Offsets, TreebankDocument
from datamodules.discourse.trees import Span, Tree

Label = tuple[str, str]  # nuclearity and relation


def right_branching(
    document: TreebankDocument, within: Label = ("NS", "elaboration"), between: Label = ("NN", "joint")
) -> Tree:
    """Return the binary tree that branches to the right within sentences, within paragraphs, and over paragraphs.

    An EDU belongs to the sentence and the paragraph that it begins in. A level without offsets is skipped; without
    sentences and paragraphs, all nodes have the label `between`.

    Args:
        document: document with EDUs, sentences and paragraphs.
        within: nuclearity and relation of nodes within sentences, by default the most frequent label there in GUM.
        between: nuclearity and relation of all other nodes, by default the most frequent coarse label in GUM.
    """
    # Units of each level are represented by their first EDUs; a group has the units within a unit of the next level.
    edus = list(range(len(document.edus)))
    spans: list[Span] = []
    sentences = _groups(edus, document, document.sentences)
    paragraphs = _groups([group[0] for group in sentences], document, document.paragraphs)
    document_level = [[group[0] for group in paragraphs]]
    for level, label in ((sentences, within), (paragraphs, between), (document_level, between)):
        ends = [following[0] - 1 for following in level[1:]] + [edus[-1]]
        for group, end in zip(level, ends, strict=True):
            # right-branching: each unit but the last is the left child of a node that ends with the group
            spans += [Span(start, split - 1, end, *label) for start, split in pairwise(group)]
    return Tree.from_spans(spans, len(edus))


def _groups(starts: list[int], document: TreebankDocument, offsets: Sequence[Offsets]) -> list[list[int]]:
    """Group first EDUs of units by the sentence or paragraph that they begin in; one group for each without offsets."""
    if not offsets:
        return [[edu] for edu in starts]
    begins = [start for start, _ in offsets]
    groups: dict[int, list[int]] = {}
    for edu in starts:
        groups.setdefault(bisect_right(begins, document.edus[edu][0]), []).append(edu)
    return list(groups.values())
