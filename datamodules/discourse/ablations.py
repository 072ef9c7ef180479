"""What RSTformer reads as the discourse of a document: that of its parser, or that of an ablation.

A model that gains from the discourse of a document, but not from matched controls, gains from its structure:

    ria        random identical attention (Pu et al. 2023): uniform values, the same in every document. Their mean is
               0.5, the mean of a parser's LDD about 0.05, so that they differ from it in more than information
    permuted   the values of the document, at other pairs of EDUs
    other      the LDD of another document

All are functions of a seed and the text of the document, identical in every epoch, batch and process.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from datamodules.discourse.distributions import band_gamma, decode, encode, inside, random_ldd, tree_gamma, tree_ldd
from datamodules.discourse.parses import DiscourseParse
from datamodules.documents import UserError

_CANDIDATES = 8  # documents of similar length, from which `other` chooses


class ParserDiscourse:
    """Discourse of the parser, unchanged, in bands of at most `half_width`; base class of the ablations."""

    def __init__(self, half_width: int, seed: int = 0) -> None:
        self.half_width = half_width
        self.seed = seed

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
        ldd = tree_ldd(parse.tree, parse.size, len(parse.relations), parse.rows, self.half(parse))
        return encode(ldd)[:size]

    def gamma(self, parse: DiscourseParse, size: int) -> Tensor:
        return tree_gamma(parse.tree, parse.size, parse.rows)[:size]


class RandomDiscourse(ParserDiscourse):
    """Random identical attention: one table of `random_ldd` for all documents.

    A random table has no values outside the band, so gamma is the mean over pairs within the band.
    """

    _table: Tensor | None = None  # codes for the longest document so far or more EDUs, [T, 2 half_width + 1, R]

    def codes(self, parse: DiscourseParse, size: int) -> Tensor:  # of the first `size` EDUs, uint8 [size, 2b + 1, R]
        if self._table is None or parse.size > len(self._table):
            num_edus = max(64, 1 << (parse.size - 1).bit_length())  # 64, 128, ...: the table rarely grows
            self._table = encode(random_ldd(num_edus, self.half_width, len(parse.relations), self.seed))
        half = self.half(parse)
        unused = self.half_width - half  # columns of the table on each side, for pairs that are too far apart
        codes = self._table[: parse.size, unused : unused + 2 * half + 1]  # [E, 2b + 1, R]
        is_pair = inside(parse.size, half).unsqueeze(-1)  # the table has values after the end of the document
        return (codes * is_pair)[:size]

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
    """The discourse of another document.

    It is one of the eight shortest documents with at least as many EDUs, or of the eight longest if there are none. The
    choice depends on `seed` and the text of the document. A document never gets the parse of the same text.

    Args:
        parses: parses of training documents, to choose from.

    Raises:
        UserError: if there are parses of fewer than two documents with different texts.
    """

    def __init__(self, half_width: int, seed: int, parses: Sequence[DiscourseParse]) -> None:
        super().__init__(half_width, seed)
        if len({parse.text_digest for parse in parses}) < 2:
            problem = "takes the discourse of another training document, but fewer than two different training"
            raise UserError(f"ablation other {problem} documents have any: give more documents, or another ablation")
        self.parses = sorted(parses, key=lambda parse: (parse.size, parse.text_digest))

    def choose(self, parse: DiscourseParse, size: int) -> DiscourseParse:
        """Choose the parse that replaces the parse of a document, of which the model reads the first `size` EDUs."""
        different = [candidate for candidate in self.parses if candidate.text_digest != parse.text_digest]
        long_enough = [candidate for candidate in different if candidate.size >= size]
        candidates = long_enough[:_CANDIDATES] or different[-_CANDIDATES:]
        return candidates[document_seed(self.seed, parse.text_digest) % len(candidates)]

    def codes(self, parse: DiscourseParse, size: int) -> Tensor:
        replacement = self.choose(parse, size)
        half = self.half(parse)
        return fit_to_size(replacement.code(min(half, replacement.size - 1)), size, half)

    def gamma(self, parse: DiscourseParse, size: int) -> Tensor:
        gamma = self.choose(parse, size).gamma
        return gamma[torch.arange(size) * min(len(gamma), size) // size]  # truncated or stretched, as in `fit_to_size`


def document_seed(seed: int, text_digest: str) -> int:
    """Return the seed of a document, a non-negative 63-bit number."""
    digest = hashlib.sha256(f"{seed} {text_digest}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1  # fits the signed 64 bits of PyTorch's seeds


def permute_pairs(codes: Tensor, seed: int) -> Tensor:
    """Permute the codes (`encode`) of an LDD of E EDUs and R relations, [E, 2b + 1, R], over the pairs in its band.

    All permutations are equally likely. The codes of a pair for all relations stay together, so that each relation
    keeps the distribution of its values. The diagonal and pairs outside the document stay zero.
    """
    is_pair = inside(len(codes), codes.shape[1] // 2)  # [E, 2b + 1]
    pair_codes = codes[is_pair]  # [pairs, R]
    order = torch.randperm(len(pair_codes), generator=torch.Generator().manual_seed(seed))
    permuted = torch.zeros_like(codes)
    permuted[is_pair] = pair_codes[order]
    return permuted


def fit_to_size(codes: Tensor, size: int, half_width: int) -> Tensor:
    """Fit an LDD's codes, see `permute_pairs`, from F to E EDUs: [F, 2c + 1, R] -> [E, 2b + 1, R], c >= min(b, F - 1).

    If F > E, the last EDUs are dropped; else EDU i gets the values of its source, EDU floor(i F / E) of F. EDUs
    with the same source get the zeros of its diagonal: they are unrelated. Column b + d of row i is EDUs i and i + d.
    """
    source_size = len(codes)  # F
    source_half = codes.shape[1] // 2  # c
    source_edu = torch.arange(size) * min(source_size, size) // size  # floor(i F / E), or i if F > E, [E]
    column_edu = (torch.arange(size)[:, None] + torch.arange(-half_width, half_width + 1)).clamp(0, size - 1)
    offset = source_edu[column_edu] - source_edu[:, None]  # distance of sources, at most that of EDUs, [E, 2b + 1]
    fitted = codes[source_edu[:, None], source_half + offset]  # [E, 2b + 1, R]
    return fitted * inside(size, half_width).unsqueeze(-1)


def evenly_spread(sizes: dict[str, int], count: int) -> list[str]:
    """Return at most `count` keys at evenly spaced quantiles of their sizes, including the smallest and the largest."""
    keys = sorted(sizes, key=lambda key: (sizes[key], key))  # equal sizes by key, the same order in every process
    if len(keys) <= count:
        return keys
    return [keys[round(place * (len(keys) - 1) / (count - 1))] for place in range(count)]
