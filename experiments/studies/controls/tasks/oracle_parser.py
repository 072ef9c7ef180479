"""Oracle parser built from the references: an upper bound on the gain from discourse."""

from functools import cached_property
from itertools import chain

import torch
from torch import Tensor

from datamodules.corpora.corpus import Corpus, make_document
from datamodules.discourse.distributions import NUCLEARITIES, tree_gamma, tree_ldd
from datamodules.discourse.parses import DiscourseParse, ParseRequest
from datamodules.discourse.relations import GUM
from datamodules.documents import BadRecord, UserError
from datamodules.text.hashing import text_digest
from datamodules.text.oracle import greedy_oracle

_NS, _SN = NUCLEARITIES.index("NS"), NUCLEARITIES.index("SN")


class OracleParser:
    """Parser of a corpus with references: the sentence closest to the reference is the nucleus of all others.

    Sentences are EDUs. The nucleus is the sentence with the highest ROUGE-1 F + ROUGE-2 F (`greedy_oracle`), and all
    other sentences are its satellites under the relation `elaboration`. A model that reads this parse knows which
    sentence the reference draws on, so what it gains over a model without discourse is a ceiling for real parses, and
    shows that an experiment can find an effect.

    Args:
        corpus: corpus of the documents.
        band: half-width of the LDD band.
    """

    rows = "nucleus"  # only the row of the nucleus carries probability
    relations = tuple(GUM.coarse)

    def __init__(self, corpus: Corpus, band: int = 128) -> None:
        self.corpus, self.band = corpus, band

    @property
    def fingerprint(self) -> str:
        """Digest of everything that parses depend on."""
        corpora = [self.corpus.fingerprint(split) for split in self.corpus.splits()]
        return f"oracle 2 of {corpora}"

    @cached_property
    def _central(self) -> dict[str, int]:
        """Index of the sentence closest to the reference, by digest of the text."""
        central = {}
        for record in chain.from_iterable(map(self.corpus.records, self.corpus.splits())):
            document = make_document(record)
            if not isinstance(document, BadRecord) and document.references:
                # no sentence is chosen if none shares a word with the reference
                chosen = greedy_oracle(document.sentences, document.references, k=1)
                central[text_digest(document.text)] = chosen[0] if chosen else 0
        return central

    def nucleus(self, request: ParseRequest) -> int:
        """Return the index of the sentence that is the nucleus.

        Raises:
            UserError: if the corpus has no reference of this document.
        """
        digest = text_digest(request.text)
        if digest not in self._central:
            raise UserError(
                f"document {request.id!r}: parser.corpus has no reference of this text; give it data.corpus"
            )
        return self._central[digest]

    def predict_step(self, batch: list[ParseRequest], batch_idx: int = 0) -> list[DiscourseParse]:
        """Return the parse of each document."""
        return [self.parse(request) for request in batch]

    def parse(self, request: ParseRequest) -> DiscourseParse:
        """Return the parse of one document."""
        size = len(request.sentences)
        tree = nuclear_tree(size, self.nucleus(request), self.relations.index("elaboration"))
        half = min(self.band, size - 1)
        ldd = tree_ldd(tree, size, len(self.relations), self.rows, half)
        return DiscourseParse.of(
            request, request.sentences, self.relations, tree, ldd, self.rows, tree_gamma(tree, size, self.rows)
        )


def nuclear_tree(size: int, nucleus: int, relation: int) -> Tensor:
    """Return the tree in which one EDU is a nucleus at every level, and all others are satellites of its spans.

    EDUs after the nucleus are attached first, from left to right, then those before it, from right to left.

    Args:
        size: number of EDUs E.
        nucleus: index of the nucleus.
        relation: id of the relation of all nodes.

    Returns:
        Nodes (start, split, end, nuclearity, relation), see `discourse.distributions.tree_ldd`, int32 [E - 1, 5].
    """
    after = [(nucleus, end - 1, end, _NS, relation) for end in range(nucleus + 1, size)]
    before = [(start, start, size - 1, _SN, relation) for start in reversed(range(nucleus))]
    return torch.tensor(after + before, dtype=torch.int32).reshape(-1, 5)
