"""Right-branching baseline parser: EDUs end at punctuation, trees branch to the right."""

import hashlib
import re

import torch
from pytorch_lightning import LightningModule

from datamodules.discourse.baselines import right_branching
from datamodules.discourse.distributions import Rows, tree_gamma, tree_ldd
from datamodules.discourse.parses import DiscourseParse, ParseRequest, nodes_of
from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.relations import GUM

# Increased whenever the same document would get a different parse.
VERSION = 1
_BREAK = re.compile(r"(?:[;:—–]|,(?=\s+(?:and|but|or|so|yet|which|who|because|although|while|if|when)\b)),?\s+")
_MIN_WORDS = 3  # of an EDU


class RightBranchingParser(LightningModule):
    """Baseline parser without training.

    Sentences are split after semicolons, colons, dashes, and commas before a conjunction or relative pronoun, if at
    least three words are on both sides. Trees branch to the right within sentences, over the sentences of a paragraph,
    and over paragraphs (`datamodules.discourse.baselines`); the LDD is that of one tree, zeros and ones.

    Args:
        rows: which EDUs carry probability in the LDD, `side` or `nucleus`.
        band: half-width of the LDD band.
    """

    def __init__(self, rows: Rows = "side", band: int = 128) -> None:
        super().__init__()
        self.rows, self.band = rows, band
        self.relations = tuple(GUM.coarse)

    @property
    def fingerprint(self) -> str:
        """Digest of the version and the relations."""
        return hashlib.sha256(f"right branching {VERSION} {self.relations}".encode()).hexdigest()

    def predict_step(self, batch: list[ParseRequest], batch_idx: int) -> list[DiscourseParse]:
        """Parse the documents of a batch."""
        return [self.parse(request) for request in batch]

    def parse(self, request: ParseRequest) -> DiscourseParse:
        """Parse one document.

        Raises:
            ValueError: if it is empty.
        """
        edus = list(request.edus) if request.edus is not None else segment(request)
        document = TreebankDocument(
            id=request.id,
            text=request.text,
            edus=edus,
            sentences=list(request.sentences),
            paragraphs=list(request.paragraphs),
        )
        tree = nodes_of(right_branching(document), self.relations) if edus else torch.empty(0, 5)
        band = min(self.band, max(0, len(edus) - 1))
        ldd = tree_ldd(tree, len(edus), len(self.relations), self.rows, band)
        gamma = tree_gamma(tree, len(edus), self.rows)
        return DiscourseParse.of(request, edus, self.relations, tree, ldd, self.rows, gamma)


def segment(request: ParseRequest) -> list[tuple[int, int]]:
    """Split sentences at punctuation; return character offsets (start, end) of EDUs, end exclusive."""
    edus = []
    for start, end in request.sentences or ((0, len(request.text)),):
        sentence, first = request.text[start:end], 0
        for match in _BREAK.finditer(sentence):
            before, after = sentence[first : match.end()], sentence[match.end() :]
            if min(len(before.split()), len(after.split())) >= _MIN_WORDS:
                edus.append((start + first, start + match.end()))
                first = match.end()
        edus.append((start + first, end))
    return [(start, end) for start, end in edus if request.text[start:end].strip()]
