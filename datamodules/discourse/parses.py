"""`ParseRequest` and `DiscourseParse`: what a parser is asked, and what it answers; token alignment."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor

from datamodules.discourse.distributions import (
    NUCLEARITIES,
    Rows,
    band_gamma,
    check_tree,
    decode,
    encode,
    inside,
    resize,
    to_dense,
    tree_ldd,
)
from datamodules.discourse.trees import Span, Tree
from datamodules.documents import Document
from datamodules.text.hashing import text_digest

Offsets = tuple[tuple[int, int], ...]
Variant = Literal["full", "one_best", "no_labels"]

_SHARE_FLOOR = 0.01  # probabilities from here on count as not zero


@dataclass(frozen=True)
class ParseRequest:
    """A document as a parser gets it. All offsets are [start, end) in characters of `text`.

    Attributes:
        id: of the document.
        text: `Document.text`.
        sentences: offsets of the sentences, in order.
        paragraphs: offsets of the parts (paragraphs or source documents), in order.
        edus: offsets of given EDUs; None where the parser is to segment.
    """

    id: str
    text: str
    sentences: Offsets
    paragraphs: Offsets
    edus: Offsets | None = None

    @classmethod
    def of(cls, document: Document, edus: Sequence[tuple[int, int]] | None = None) -> Self:
        """The request for a document: sentences a space apart, paragraphs a blank line apart, as in `Document.text`."""
        sentences, paragraphs, at = [], [], 0
        for part in document.parts:
            start = at
            for sentence in part:
                sentences.append((at, at + len(sentence)))
                at += len(sentence) + 1
            at = max(start, at - 1)
            paragraphs.append((start, at))
            at += 2
        given = None if edus is None else tuple((int(a), int(b)) for a, b in edus)
        return cls(document.id, document.text, tuple(sentences), tuple(paragraphs), given)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to parse."""
        return not self.text.strip()


@dataclass
class DiscourseParse:
    """A document's discourse: EDUs, the best tree, and p(edu_i is the nucleus of edu_j under relation l).

    Attributes:
        id: of the document.
        text_digest: of the text that `edus` point into.
        edus: [start, end) in characters of `Document.text`, without whitespace at the ends, in order, int32 [E, 2].
        relations: names of the R coarse relations.
        rows: reading of the LDD, see `tree_ldd`.
        tree: the best tree's nodes (start, split, end, nuclearity, relation) over EDUs start ... split and
            split + 1 ... end (inclusive, as in `trees.Span`), with ids into `NUCLEARITIES` and `relations`, int32
            [E - 1, 5].
        ldd: the LDD's band in one byte a value (`distributions.encode`), uint8 [E, 2b + 1, R].
        gamma: how much the document leans on each EDU as a nucleus: (1 / E) sum over all EDUs b and relations l of
            p(a, b, l), pairs beyond the band included, float32 [E]. RST-LoRA weighs updates by it.
    """

    id: str
    text_digest: str
    edus: Tensor
    relations: tuple[str, ...]
    rows: Rows
    tree: Tensor
    ldd: Tensor
    gamma: Tensor

    @classmethod
    def of(
        cls,
        request: ParseRequest,
        edus: Tensor | Sequence[tuple[int, int]],
        relations: Sequence[str],
        tree: Tensor,
        band: Tensor,
        rows: Rows = "side",
        gamma: Tensor | None = None,
    ) -> Self:
        """A parser's answer, checked and brought to its compact form.

        Args:
            request: what was parsed.
            edus: offsets of the EDUs in order, not overlapping, [E, 2]; whitespace at their ends is cut off.
            relations: names of the R relations.
            tree: nodes of the best tree, [E - 1, 5], in any order.
            band: the LDD's band, floats [E, 2b + 1, R] on any device; values on the diagonal and outside the document
                are ignored. Half-widths beyond E - 1 are cut to it.
            rows: reading of the LDD.
            gamma: see there; taken from the band if not given, which then has to reach every pair of EDUs.

        Raises:
            ValueError: if there is no EDU, EDUs overlap or leave the text, the tree is none, a value of the band is no
                probability, or gamma is missing, of another shape or negative; names the document.
        """
        try:
            edus = trimmed(torch.as_tensor(edus, dtype=torch.int32).reshape(-1, 2), request.text)
            size = len(edus)
            tree = check_tree(torch.as_tensor(tree, dtype=torch.int32).reshape(-1, 5).cpu(), size, len(relations))
            if band.dim() != 3 or band.shape[0] != size or band.shape[1] % 2 == 0 or band.shape[2] != len(relations):
                shape = f"[{size}, 2b + 1, {len(relations)}]"
                raise ValueError(f"the band of its LDD is {list(band.shape)}, not {shape}")
            band = resize(band.detach(), min(band.shape[1] // 2, size - 1))
            within = inside(size, band.shape[1] // 2).unsqueeze(-1).to(band.device)
            band = band.where(within, band.new_zeros(()))
            code = encode(band).cpu()
            if gamma is None and band.shape[1] == 2 * size - 1:  # the band reaches every pair
                gamma = band_gamma(band)
            gamma = checked_gamma(gamma, size)
        except ValueError as error:
            raise ValueError(f"document {request.id!r}: {error}") from None
        return cls(request.id, text_digest(request.text), edus, tuple(relations), rows, tree, code, gamma)

    @property
    def size(self) -> int:
        """Number of EDUs E."""
        return self.edus.shape[0]

    @property
    def half_width(self) -> int:
        """Half-width b of the stored band, at most E - 1."""
        return self.ldd.shape[1] // 2

    @property
    def nbytes(self) -> int:
        """Bytes of its tensors."""
        return sum(tensor.nbytes for tensor in (self.edus, self.tree, self.ldd, self.gamma))

    def band(self, half_width: int, variant: Variant = "full") -> Tensor:
        """The LDD's band: entry [i, b + d, l] is p(edu_i, edu_(i + d), l); zero on the diagonal and outside.

        Args:
            half_width: b, in EDUs.
            variant: `full`; `one_best`, the best tree's own, zeros and ones; `no_labels`, the mean over relations in
                the place of each relation.

        Returns:
            [E, 2b + 1, R], float32.

        Raises:
            ValueError: if pairs that are in the document and in the band asked for were not stored.
        """
        if variant == "one_best":
            return tree_ldd(self.tree, self.size, len(self.relations), self.rows, half_width)
        if variant not in ("full", "no_labels"):
            raise ValueError(f"no variant {variant!r}; there are full, one_best, no_labels")
        values = decode(self.code(half_width))
        return values if variant == "full" else values.mean(-1, keepdim=True).expand_as(values).contiguous()

    def code(self, half_width: int) -> Tensor:
        """The band as it is stored, for decoding on a device: uint8 [E, 2b + 1, R] (see `distributions.decode`).

        Raises:
            ValueError: as `band`.
        """
        if min(half_width, self.size - 1) > self.half_width:
            raise ValueError(
                f"document {self.id!r}: {half_width} EDUs to each side were asked for, its parse holds"
                f" {self.half_width}; parse again with --band {half_width}, or use a smaller window"
            )
        return resize(self.ldd, half_width)

    def dense(self, variant: Variant = "full") -> Tensor:
        """The LDD of all pairs, [E, E, R], float32: E^2 R values, for short documents.

        Raises:
            ValueError: if the stored band is narrower than the document.
        """
        return to_dense(self.band(max(0, self.size - 1), variant))

    def share(self, floor: float = _SHARE_FLOOR) -> float:
        """Share of the stored pairs' values that reach a probability."""
        pairs = int(inside(self.size, self.half_width).sum())
        least = int(encode(torch.tensor(floor)))
        return int((self.ldd >= least).sum()) / (pairs * len(self.relations)) if pairs else 0.0

    def best_tree(self) -> Tree:
        """The best tree, with the relations' names."""
        nodes = self.tree.tolist()
        spans = [Span(a, k, b, NUCLEARITIES[nuclearity], self.relations[label]) for a, k, b, nuclearity, label in nodes]
        return Tree.from_spans(spans, self.size)

    def align(self, offsets: Tensor) -> Tensor:
        """The EDU of each token, see `align`."""
        return align(offsets, self.edus)


def nodes_of(tree: Tree, relations: Sequence[str]) -> Tensor:
    """The nodes of a binary tree as `DiscourseParse` has them, int32 [E - 1, 5].

    Raises:
        ValueError: if a relation is none of those given.
    """
    index = {name: i for i, name in enumerate(relations)}
    spans = tree.spans()
    if unknown := [span.relation for span in spans if span.relation not in index]:
        raise ValueError(f"relation {unknown[0]!r} is none of {', '.join(relations)}")
    rows = [(s.start, s.split, s.end, NUCLEARITIES.index(s.nuclearity), index[s.relation]) for s in spans]
    return torch.tensor(rows, dtype=torch.int32).reshape(-1, 5)


def checked_gamma(gamma: Tensor | None, size: int) -> Tensor:
    """Return gamma of `size` EDUs as it is stored, float32 [E].

    Raises:
        ValueError: if it is missing, of another shape, negative or not a number.
    """
    if gamma is None:
        raise ValueError("its band does not reach every pair of EDUs, so that gamma has to be given")
    if gamma.shape != (size,) or not (gamma >= -1e-4).all():  # so written, NaN fails too
        raise ValueError(f"gamma is a number of 0 or more for each of {size} EDUs, got {gamma.tolist()[:5]} ...")
    return gamma.detach().float().clamp(min=0).cpu().contiguous()


def trimmed(edus: Tensor, text: str) -> Tensor:
    """EDUs without whitespace at their ends, [E, 2].

    Raises:
        ValueError: if there is none, one is empty, leaves the text or overlaps the one before.
    """
    if not len(edus):
        raise ValueError("there is no EDU; leave empty documents out")
    out, before = [], 0
    for start, end in edus.tolist():
        if not before <= start < end <= len(text):
            problem = f"the one before ends at {before}, the text at {len(text)}"
            raise ValueError(f"EDU [{start}, {end}) is empty, overlaps another or leaves the text ({problem})")
        piece = text[start:end]
        left, right = len(piece) - len(piece.lstrip()), len(piece) - len(piece.rstrip())
        if left == len(piece):
            raise ValueError(f"EDU [{start}, {end}) is nothing but whitespace")
        out.append((start + left, end - right))
        before = end
    return torch.tensor(out, dtype=torch.int32)


def align(offsets: Tensor, edus: Tensor) -> Tensor:
    """The EDU of each token: the first one that it overlaps. As EDUs neither begin nor end with whitespace, that is
    the one with the token's first character that is not whitespace, also where a tokenizer counts spaces in.

    Args:
        offsets: [start, end) of the tokens in characters of the text, [T, 2]; empty ones are special tokens.
        edus: [start, end) of the EDUs, in order and disjoint, [E, 2].

    Returns:
        Index of the EDU, -1 for special tokens and for tokens in no EDU, int64 [T].
    """
    start, end = offsets.long().unbind(-1)
    edus = edus.long()
    index = torch.searchsorted(edus[:, 1].contiguous(), start.contiguous(), right=True)  # the first that ends later
    found = index.clamp(max=len(edus) - 1)
    overlaps = (index < len(edus)) & (edus[found, 0] < end) & (start < end)
    return torch.where(overlaps, found, -1)
