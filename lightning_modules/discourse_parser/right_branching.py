"""Right-branching baseline parser: EDUs end at punctuation, trees branch to the right."""

import hashlib
import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

import torch
from pytorch_lightning import LightningModule

from datamodules.discourse.distributions import Rows, tree_gamma, tree_ldd
from datamodules.discourse.parses import DiscourseParse, ParseRequest, nodes_of
from datamodules.discourse.records import Offsets, TreebankDocument
from datamodules.discourse.relations import GUM
from datamodules.discourse.trees import Span, Tree

Label = tuple[str, str]  # nuclearity and relation

# Increased whenever the same document would get a different parse.
VERSION = 1
_BREAK = re.compile(r"(?:[;:—–]|,(?=\s+(?:and|but|or|so|yet|which|who|because|although|while|if|when)\b)),?\s+")
_MIN_WORDS = 3  # minimum number of words of an EDU


class RightBranchingParser(LightningModule):
    """Baseline RST parser without training.

    Sentences are split into EDUs after semicolons, colons, dashes, and commas before a conjunction or relative pronoun,
    if at least three words are on each side. Trees branch to the right within sentences, over the sentences of a
    paragraph, and over paragraphs; LDD values, p(EDU a is the nucleus of EDU b under a relation), are thus 0 or 1.

    Args:
        rows: which EDUs count in the LDD: all in a node's nucleus (`side`), or only nuclei of their parent (`nucleus`).
        band: half-width of the band of the LDD: maximum distance, in EDUs, of the pairs that are stored.
    """

    def __init__(self, rows: Rows = "side", band: int = 128) -> None:
        super().__init__()
        self.rows = rows
        self.band = band
        self.relations = tuple(GUM.coarse)

    @property
    def fingerprint(self) -> str:
        """Digest of all that parses depend on: the version and the relations."""
        return hashlib.sha256(f"right branching {VERSION} {self.relations}".encode()).hexdigest()

    def predict_step(self, batch: list[ParseRequest], batch_idx: int) -> list[DiscourseParse]:
        """Parse the documents of a batch."""
        return [self.parse(request) for request in batch]

    def parse(self, request: ParseRequest) -> DiscourseParse:
        """Parse one document; `DiscourseParse.of` raises a `ValueError` if it is empty."""
        edus = list(request.edus) if request.edus is not None else segment(request)
        document = TreebankDocument(request.id, request.text, edus, list(request.sentences), list(request.paragraphs))
        tree = nodes_of(right_branching(document), self.relations) if edus else torch.empty(0, 5)  # [E - 1, 5]
        ldd = tree_ldd(tree, len(edus), len(self.relations), self.rows, self.band)  # [E, 2 band + 1, R]
        gamma = tree_gamma(tree, len(edus), self.rows)  # importance of EDUs, from all pairs, [E]
        return DiscourseParse.of(request, edus, self.relations, tree, ldd, self.rows, gamma)


def segment(request: ParseRequest) -> list[tuple[int, int]]:
    """Split sentences after punctuation: return the nonblank EDUs as (start, end) in characters, end exclusive."""
    edus = []
    for start, end in request.sentences or ((0, len(request.text)),):  # no offsets: one sentence
        sentence, edu_start = request.text[start:end], 0  # `edu_start` is relative to the sentence
        for match in _BREAK.finditer(sentence):  # ; : or dash, or comma before a word such as "and"
            before, after = sentence[edu_start : match.end()], sentence[match.end() :]
            if min(len(before.split()), len(after.split())) >= _MIN_WORDS:  # neither the EDU nor the rest is too short
                edus.append((start + edu_start, start + match.end()))
                edu_start = match.end()
        edus.append((start + edu_start, end))
    return [(start, end) for start, end in edus if request.text[start:end].strip()]


def right_branching(
    document: TreebankDocument, within: Label = ("NS", "elaboration"), between: Label = ("NN", "joint")
) -> Tree:
    """Return the binary tree that branches to the right within sentences, within paragraphs, and over paragraphs.

    If the document has no offsets of sentences or paragraphs, that level is skipped. Nodes within sentences have the
    label `within` (nuclearity and relation), all others `between`; the defaults are the most frequent ones of GUM.
    """
    # a unit (EDU, sentence, paragraph) is represented by its first EDU; a group lists the units in one larger unit
    edus = list(range(len(document.edus)))
    spans: list[Span] = []
    sentences = _groups(edus, document, document.sentences)
    paragraphs = _groups([group[0] for group in sentences], document, document.paragraphs)
    document_level = [[group[0] for group in paragraphs]]
    for level, label in ((sentences, within), (paragraphs, between), (document_level, between)):
        ends = [following[0] - 1 for following in level[1:]] + [edus[-1]]  # a group ends before the next one
        for group, end in zip(level, ends, strict=True):
            # right-branching: each unit but the last is the left child of a node that ends with the group
            spans += [Span(start, split - 1, end, *label) for start, split in pairwise(group)]
    return Tree.from_spans(spans, len(edus))


def _groups(starts: list[int], document: TreebankDocument, offsets: Sequence[Offsets]) -> list[list[int]]:
    """Group units, given by their first EDUs, by the larger unit (at `offsets`) that they begin in, if any."""
    if not offsets:  # each unit is a group by itself
        return [[edu] for edu in starts]
    larger_starts = [start for start, _ in offsets]  # in characters, whereas `starts` are indices of EDUs
    groups: dict[int, list[int]] = {}
    for edu in starts:
        groups.setdefault(bisect_right(larger_starts, document.edus[edu][0]), []).append(edu)  # key: larger unit
    return list(groups.values())
