"""What RSTformer reads as the discourse of a document: the output of its parser, or an ablation.

A model that gains from the discourse of a document, but not from matched controls, gains from its structure:

    ria        random identical attention (Pu et al. 2023): uniform values, the same in every document. Their mean is
               0.5, the mean of a parser's LDD about 0.05, so that they differ from it in more than information
    permuted   the values of the document, at other pairs of EDUs
    other      the LDD of another document

All are functions of a seed and the text of the document, identical in every epoch, batch and process.
"""

import hashlib
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from datamodules.discourse.distributions import band_gamma, decode, encode, inside, random_ldd, tree_gamma, tree_ldd
from datamodules.discourse.parses import DiscourseParse
from datamodules.documents import UserError

Ablation = Literal["none", "wac", "ria", "permuted", "other", "no_labels", "one_best", "no_discourse"]
_CANDIDATES = 8  # documents of similar length, from which `other` chooses


class ParserDiscourse:
    """Discourse as the parser gives it; base class of the ablations.

    An LDD (labeled discourse distribution) is p(EDU i is the nucleus of EDU j under relation l) for elementary
    discourse units (EDUs). Only its band of half-width b is kept: pairs of EDUs at most b <= `half_width` apart.
    """

    def __init__(self, half_width: int, seed: int = 0) -> None:
        self.half_width = half_width
        self.seed = seed

    def half(self, parse: DiscourseParse) -> int:
        """Return the half-width b of the band of a document, at most its number of EDUs minus one."""
        return min(self.half_width, parse.size - 1)

    def codes(self, parse: DiscourseParse, size: int) -> Tensor:
        """Return the LDD band of the first E = `size` EDUs for R relations, a byte per value, uint8 [E, 2b + 1, R]."""
        return parse.code(self.half(parse))[:size]

    def gamma(self, parse: DiscourseParse, size: int) -> Tensor:
        """Return gamma, the importance of each of the first E = `size` EDUs as a nucleus, see `tree_gamma`, [E]."""
        return parse.gamma[:size]


class OneBestDiscourse(ParserDiscourse):
    """The LDD of the most probable tree, zeros and ones, instead of the distribution over trees."""

    def codes(self, parse: DiscourseParse, size: int) -> Tensor:
        ldd = tree_ldd(parse.tree, parse.size, len(parse.relations), rows=parse.rows, band=self.half(parse))
        return encode(ldd)[:size]  # one byte per value

    def gamma(self, parse: DiscourseParse, size: int) -> Tensor:
        return tree_gamma(parse.tree, parse.size, parse.rows)[:size]


class RandomDiscourse(ParserDiscourse):
    """Random identical attention (Pu et al. 2023): one random LDD, a table of `random_ldd`, for all documents.

    The table has no values outside the band, so gamma, the importance of EDUs, is the mean over pairs within the band.
    """

    _table: Tensor | None = None  # codes of T EDUs, enough for the longest document so far, [T, 2 half_width + 1, R]

    def codes(self, parse: DiscourseParse, size: int) -> Tensor:  # of the first `size` EDUs, uint8 [size, 2b + 1, R]
        if self._table is None or parse.size > len(self._table):
            num_edus = max(64, 1 << (parse.size - 1).bit_length())  # 64, 128, ..., so that the table rarely grows
            self._table = encode(random_ldd(num_edus, self.half_width, len(parse.relations), self.seed))
        half = self.half(parse)
        unused = self.half_width - half  # columns of the table on each side, for pairs that are too far apart
        codes = self._table[: parse.size, unused : unused + 2 * half + 1]  # [E, 2b + 1, R]
        is_pair = inside(parse.size, half).unsqueeze(-1)  # False outside the document, where the table has values
        return (codes * is_pair)[:size]

    def gamma(self, parse: DiscourseParse, size: int) -> Tensor:
        return band_gamma(decode(self.codes(parse, parse.size)))[:size]


class PermutedDiscourse(ParserDiscourse):
    """The values of the document at other pairs of EDUs; gamma (importance of EDUs) is permuted over EDUs."""

    def codes(self, parse: DiscourseParse, size: int) -> Tensor:
        return permute_pairs(super().codes(parse, size), document_seed(self.seed, parse.text_digest))

    def gamma(self, parse: DiscourseParse, size: int) -> Tensor:
        generator = torch.Generator().manual_seed(document_seed(self.seed, parse.text_digest))
        return parse.gamma[:size][torch.randperm(size, generator=generator)]


class OtherDiscourse(ParserDiscourse):
    """The discourse of another document.

    That is one of the eight shortest with at least as many EDUs, or one of the eight longest if none has as many. The
    choice depends on `seed` and the text of the document. A document never gets a parse of its own text.

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
        return gamma[torch.arange(size) * min(len(gamma), size) // size]  # EDUs repeat if too few: 0, 0, 1, ...


def document_seed(seed: int, text_digest: str) -> int:
    """Return the seed of a document, a non-negative 63-bit number."""
    digest = hashlib.sha256(f"{seed} {text_digest}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1  # fits the signed 64 bits of PyTorch's seeds


def permute_pairs(codes: Tensor, seed: int) -> Tensor:
    """Permute a labeled discourse distribution, one byte per probability, [E, 2b + 1, R], over the pairs in its band.

    Entry [i, b + d] is the pair of EDUs i and i + d. All permutations are equally likely. The codes of a pair for all R
    relations stay together, so each relation keeps its values. The diagonal and pairs outside the document stay zero.
    """
    is_pair = inside(len(codes), codes.shape[1] // 2)  # [E, 2b + 1]
    pair_codes = codes[is_pair]  # [pairs, R]
    order = torch.randperm(len(pair_codes), generator=torch.Generator().manual_seed(seed))
    permuted = torch.zeros_like(codes)
    permuted[is_pair] = pair_codes[order]
    return permuted


def fit_to_size(codes: Tensor, size: int, half_width: int) -> Tensor:
    """Truncate or stretch a labeled discourse distribution of F to E EDUs, [F, 2c + 1, R] -> [E, 2b + 1, R].

    Entry [i, b + d] has a byte per relation for EDUs i, i + d; c >= min(b, F - 1). If F > E, the last EDUs are dropped,
    else EDU i gets the values of source EDU floor(i F / E), so a pair with the same source gets zeros.
    """
    source_size = len(codes)  # F
    source_half = codes.shape[1] // 2  # c
    edu = torch.arange(size)  # EDU i of each row, [E]
    source_edu = edu * min(source_size, size) // size  # floor(i F / E), or i if F > E, [E]
    column_edu = (edu[:, None] + torch.arange(-half_width, half_width + 1)).clamp(0, size - 1)  # j = i + d, [E, 2b + 1]
    offset = source_edu[column_edu] - source_edu[:, None]  # from the source of i to that of j, [E, 2b + 1]
    fitted = codes[source_edu[:, None], source_half + offset]  # [E, 2b + 1, R]
    return fitted * inside(size, half_width).unsqueeze(-1)  # zeros at d = 0 and where there is no EDU i + d


def evenly_spread(sizes: dict[str, int], count: int) -> list[str]:
    """Return at most `count` keys at evenly spaced quantiles of their sizes, including the smallest and the largest."""
    keys = sorted(sizes, key=lambda key: (sizes[key], key))  # equal sizes by key, the same order in every process
    if len(keys) <= count:
        return keys
    return [keys[round(place * (len(keys) - 1) / (count - 1))] for place in range(count)]
