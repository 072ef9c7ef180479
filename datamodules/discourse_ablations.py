"""What RSTformer reads as the discourse of a document: that of its parser, or that of an ablation."""

import torch
from torch import Tensor

from datamodules.discourse.controls import OtherDocuments, RandomTable, document_seed, permute_pairs
from datamodules.discourse.distributions import band_gamma, decode, encode, tree_gamma
from datamodules.discourse.parses import DiscourseParse


class ParserDiscourse:
    """Discourse of the parser, unchanged; base class of the ablations.

    Args:
        half_width: largest half-width of the LDD band.
        seed: seed of random ablations.
    """

    def __init__(self, half_width: int, seed: int = 0) -> None:
        self.half_width, self.seed = half_width, seed

    def half(self, parse: DiscourseParse) -> int:
        """Return the half-width b of the band of a document, less than its number of EDUs."""
        return min(self.half_width, parse.size - 1)

    def codes(self, parse: DiscourseParse, size: int) -> Tensor:
        """Return the LDD of the first `size` EDUs with one byte per value, uint8 [E, 2b + 1, R]."""
        return parse.code(self.half(parse))[:size]

    def gamma(self, parse: DiscourseParse, size: int) -> Tensor:
        """Return the importance of the first `size` EDUs as nuclei, [E]."""
        return parse.gamma[:size]


class OneBestDiscourse(ParserDiscourse):
    """The most probable tree in place of the distribution over trees."""

    def codes(self, parse: DiscourseParse, size: int) -> Tensor:
        return encode(parse.band(self.half(parse), "one_best"))[:size]

    def gamma(self, parse: DiscourseParse, size: int) -> Tensor:
        return tree_gamma(parse.tree, parse.size, parse.rows)[:size]


class RandomDiscourse(ParserDiscourse):
    """Random identical attention (Pu et al. 2023): one random table for all documents.

    A random table has no values outside the band, so gamma is the mean over pairs within the band.

    Args:
        sparse: whether as many values are zero as in the parse of the document.
    """

    def __init__(self, half_width: int, seed: int = 0, sparse: bool = False) -> None:
        super().__init__(half_width, seed)
        self.sparse = sparse
        self._table: RandomTable | None = None

    def codes(self, parse: DiscourseParse, size: int) -> Tensor:
        if self._table is None:
            self._table = RandomTable(self.half_width, len(parse.relations), self.seed, self.sparse)
        share = parse.share() if self.sparse else 1.0
        return self._table.codes(parse.size, self.half(parse), share)[:size]

    def gamma(self, parse: DiscourseParse, size: int) -> Tensor:
        return band_gamma(decode(self.codes(parse, parse.size)))[:size]


class PermutedDiscourse(ParserDiscourse):
    """The values of the document at other pairs of EDUs; each EDU has the gamma of another EDU."""

    def codes(self, parse: DiscourseParse, size: int) -> Tensor:
        return permute_pairs(super().codes(parse, size), document_seed(self.seed, parse.text_digest))

    def gamma(self, parse: DiscourseParse, size: int) -> Tensor:
        generator = torch.Generator().manual_seed(document_seed(self.seed, parse.text_digest))
        return parse.gamma[:size][torch.randperm(size, generator=generator)]


class OtherDiscourse(ParserDiscourse):
    """The discourse of another document, see `OtherDocuments`."""

    def __init__(self, half_width: int, seed: int, parses: list[DiscourseParse]) -> None:
        super().__init__(half_width, seed)
        self.documents = OtherDocuments(parses, seed)

    def codes(self, parse: DiscourseParse, size: int) -> Tensor:
        return self.documents.codes(parse, size, self.half(parse))

    def gamma(self, parse: DiscourseParse, size: int) -> Tensor:
        return self.documents.gamma(parse, size)
