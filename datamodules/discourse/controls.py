"""Matched controls: labelled discourse distributions (LDD) without information about the document.

A model that gains from the LDD of a document, but not from these, gains from its discourse:

    ria        random identical attention (Pu et al. 2023): uniform values, the same in every document. Their mean is
               0.5, that of a parser about 0.05, so that they differ from a real LDD in more than information
    permuted   the values of the document, at other pairs of EDUs
    other      the LDD of another document

All are functions of a seed and the text of the document, identical in every epoch, batch and process.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from datamodules.discourse.distributions import encode, inside, random_draws, random_ldd
from datamodules.discourse.parses import DiscourseParse
from datamodules.documents import UserError

_CANDIDATES = 8  # documents of similar length, from which `other` chooses


def document_seed(seed: int, text_digest: str) -> int:
    """Return the seed of a document, a non-negative 63-bit number."""
    digest = hashlib.sha256(f"{seed} {text_digest}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


class RandomTable:
    """Table of codes of `random_ldd` for documents of any size, computed once.

    Args:
        half_width: largest half-width of a band.
        relations: number of relations R.
        seed: seed of the values.
        sparse: whether some values are zero, see `share` of `codes`.
    """

    def __init__(self, half_width: int, relations: int, seed: int = 0, sparse: bool = False) -> None:
        self.half_width, self.relations, self.seed, self.sparse = half_width, relations, seed, sparse
        self._codes = torch.zeros(0, 2 * half_width + 1, relations, dtype=torch.uint8)
        self._draws: Tensor | None = None

    def codes(self, size: int, half_width: int, share: float = 1.0) -> Tensor:
        """Return the codes of `random_ldd(size, half_width, relations, share, seed)`.

        Args:
            size: number of EDUs E.
            half_width: half-width b, at most that of the table.
            share: fraction of non-zero values; used only by sparse tables.

        Returns:
            uint8 [E, 2b + 1, R], see `distributions.encode`.
        """
        if size > len(self._codes):
            self._grow(size)
        side = self.half_width - half_width
        window = (slice(size), slice(side, side + 2 * half_width + 1))
        codes = self._codes[window] * inside(size, half_width).unsqueeze(-1)
        return codes * (self._draws[window] < share) if self.sparse else codes

    def _grow(self, size: int) -> None:
        """Recompute the table for at least `size` EDUs, rounded up to a power of two."""
        size = max(64, 1 << (size - 1).bit_length())
        self._codes = encode(random_ldd(size, self.half_width, self.relations, 1.0, self.seed))
        if self.sparse:
            self._draws = random_draws(size, self.half_width, self.relations, self.seed)


def permute_pairs(codes: Tensor, seed: int) -> Tensor:
    """Permute the values of an LDD over all pairs of EDUs.

    The relations of a pair stay together, so that each relation keeps the distribution of its values; the diagonal
    stays zero.

    Args:
        codes: codes of a band, [E, 2b + 1, R]; pairs outside the document are ignored.
        seed: seed of the permutation, which is uniform.

    Returns:
        Tensor of the same shape and type.
    """
    pairs = inside(len(codes), codes.shape[1] // 2)                                   # [E, 2b + 1]
    values = codes[pairs]                                                             # [pairs, R]
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(seed))
    permuted = torch.zeros_like(codes)
    permuted[pairs] = values[order]
    return permuted


def fit_to_size(codes: Tensor, size: int, half_width: int) -> Tensor:
    """Fit an LDD to another number of EDUs.

    A longer LDD is truncated. A shorter one is stretched: EDU i of E gets the values of EDU floor(i F / E) of F, which
    keeps relative positions; EDUs that share a source EDU are unrelated.

    Args:
        codes: codes of a band, [F, 2c + 1, R], c at least min(b, F - 1).
        size: number of EDUs E.
        half_width: half-width b.

    Returns:
        [E, 2b + 1, R], of the type of `codes`.
    """
    length, half = len(codes), codes.shape[1] // 2
    source_edu = torch.arange(size) * min(length, size) // size                       # [E]
    column_edu = (torch.arange(size)[:, None] + torch.arange(-half_width, half_width + 1)).clamp(0, size - 1)
    offset = source_edu[column_edu] - source_edu[:, None]                             # [E, 2b + 1], at most b
    fitted = codes[source_edu[:, None], (half + offset).clamp(0, 2 * half)]
    return fitted * inside(size, half_width).unsqueeze(-1)


class OtherDocuments:
    """Parses of other documents, one of which replaces that of a document.

    It is one of the eight shortest that have at least as many EDUs, or of the eight longest if none has; the choice
    depends on `seed` and the text of the document. A document never gets its own parse.

    Args:
        parses: parses of at least two documents with different texts.
        seed: seed of the choice.

    Raises:
        UserError: if there are fewer.
    """

    def __init__(self, parses: Sequence[DiscourseParse], seed: int = 0) -> None:
        if len({parse.text_digest for parse in parses}) < 2:
            raise UserError(
                "ablation other takes the discourse of another training document, but fewer than two different "
                "training documents have any: give more documents, or another ablation"
            )
        self.parses, self.seed = sorted(parses, key=lambda parse: (parse.size, parse.text_digest)), seed

    def choose(self, parse: DiscourseParse, size: int) -> DiscourseParse:
        """Choose the parse that replaces that of a document.

        Args:
            parse: parse of the document.
            size: number of EDUs that are read.
        """
        different = [candidate for candidate in self.parses if candidate.text_digest != parse.text_digest]
        long_enough = [candidate for candidate in different if candidate.size >= size]
        candidates = long_enough[:_CANDIDATES] or different[-_CANDIDATES:]
        return candidates[document_seed(self.seed, parse.text_digest) % len(candidates)]

    def gamma(self, parse: DiscourseParse, size: int) -> Tensor:
        """Return gamma of another document at the relative positions of the first `size` EDUs of this one, [E]."""
        gamma = self.choose(parse, size).gamma
        return gamma[torch.arange(size) * min(len(gamma), size) // size]

    def codes(self, parse: DiscourseParse, size: int, half_width: int) -> Tensor:
        """Return codes of another document's LDD, fitted to the first `size` EDUs of this one: uint8 [E, 2b + 1, R]."""
        replacement = self.choose(parse, size)
        return fit_to_size(replacement.code(min(half_width, replacement.size - 1)), size, half_width)


def evenly_spread(sizes: dict[str, int], count: int) -> list[str]:
    """Return at most `count` keys at evenly spaced quantiles of size, including the smallest and the largest.

    Args:
        sizes: size of each key.
        count: maximal number of keys, at least 2.
    """
    keys = sorted(sizes, key=lambda key: (sizes[key], key))
    if len(keys) <= count:
        return keys
    return [keys[round(place * (len(keys) - 1) / (count - 1))] for place in range(count)]
