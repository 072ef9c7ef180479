"""`ParseRequest` and `DiscourseParse`, input and output of discourse parsers; alignment of tokens with EDUs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

import torch
from torch import Tensor

from datamodules.discourse import distributions
from datamodules.discourse.distributions import NUCLEARITIES, Rows, check_tree, decode, encode, inside, resize
from datamodules.discourse.trees import Span, Tree
from datamodules.documents import Document
from datamodules.text.hashing import text_digest

Offsets = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ParseRequest:
    """Input of a parser: a document. Offsets are (start, end) in characters of `text`, end exclusive."""

    id: str  # id of the document
    text: str  # `Document.text`
    sentences: Offsets  # offsets of the sentences, in order
    paragraphs: Offsets  # offsets of the parts (paragraphs or source documents), in order
    edus: Offsets | None = None  # offsets of EDUs; None if the parser is to segment the text

    @classmethod
    def of(cls, document: Document, edus: Sequence[tuple[int, int]] | None = None) -> Self:
        """Build the request for a document; `edus` are offsets of EDUs, None if the parser is to segment the text."""
        ends = document.sentence_ends
        sentences = [(end - len(sentence), end) for sentence, end in zip(document.sentences, ends)]
        lengths = [len(" ".join(sentences_of_part)) for sentences_of_part in document.parts]  # in characters
        starts = accumulate((length + len("\n\n") for length in lengths), initial=0)  # blank lines separate parts
        paragraphs = [(start, start + length) for start, length in zip(starts, lengths)]
        edu_offsets = None if edus is None else tuple((int(start), int(end)) for start, end in edus)
        return cls(document.id, document.text, tuple(sentences), tuple(paragraphs), edu_offsets)

    @property
    def empty(self) -> bool:
        """Whether the text is blank."""
        return not self.text.strip()


@dataclass
class DiscourseParse:
    """Discourse of a document: E EDUs (elementary discourse units), their best RST tree, and the LDD of the parser.

    The LDD (labeled discourse distribution) is p(edu_i is the nucleus of edu_j under relation l) for R relations.
    """

    id: str  # id of the document
    text_digest: str  # digest of the text
    # [start, end) in characters of `Document.text`, without whitespace at the ends, in order, int32 [E, 2]
    edus: Tensor
    relations: tuple[str, ...]  # names of the R coarse relations
    rows: Rows  # which EDUs i carry probability in the LDD, see `tree_ldd`
    # the best tree's nodes (start, split, end, nuclearity, relation) over EDUs start ... split and split + 1 ... end
    # (inclusive, as in `trees.Span`), with ids into `NUCLEARITIES` and `relations`, int32 [E - 1, 5].
    tree: Tensor
    ldd: Tensor  # LDD for |j - i| <= b, one byte per value (`distributions.encode`), j = i - b + column, [E, 2b + 1, R]
    gamma: Tensor  # importance of EDU a as a nucleus, (1 / E) sum of p(a, b, l) over all EDUs b and relations l, [E]

    @classmethod
    def of(
        cls, request: ParseRequest, edus: Tensor | Sequence[tuple[int, int]], relations: Sequence[str],
        tree: Tensor, band: Tensor, rows: Rows = "side", gamma: Tensor | None = None,
    ) -> Self:  # fmt: skip
        """Build a parse from the output of a parser: validate and compress it.

        Args:
            edus: offsets of the EDUs in order, not overlapping, [E, 2]; whitespace at their ends is stripped.
            tree: nodes (start, split, end, nuclearity, relation) of the best tree, [E - 1, 5], in any order.
            band: band of the LDD, float [E, 2b + 1, R] on any device; values on the diagonal and outside the document
                are ignored, a half-width above E - 1 is reduced to it.
            rows: which EDUs i carry probability in the LDD, `side` or `nucleus`, see `tree_ldd`.
            gamma: importance of each EDU, [E]; computed by default from the band, which must then include every pair.

        Raises:
            ValueError: if there is no EDU, EDUs overlap or leave the text, the tree or the band is invalid, or gamma
                is missing, of another shape or negative; the message names the document.
        """
        try:
            edus = strip_edus(torch.as_tensor(edus, dtype=torch.int32).reshape(-1, 2), request.text)
            size = len(edus)
            tree = check_tree(torch.as_tensor(tree, dtype=torch.int32).reshape(-1, 5).cpu(), size, len(relations))
            has_center = band.dim() == 3 and band.shape[1] % 2 == 1  # 2b + 1 columns
            if not has_center or band.shape[0] != size or band.shape[2] != len(relations):
                shape = f"[{size}, 2b + 1, {len(relations)}]"
                raise ValueError(f"the band of its LDD is {list(band.shape)}, not {shape}")
            half_width = min(band.shape[1] // 2, size - 1)
            band = resize(band.detach(), half_width)  # [E, 2b + 1, R]
            is_pair = inside(size, half_width).unsqueeze(-1).to(band.device)  # [E, 2b + 1, 1]
            band = band.where(is_pair, band.new_zeros(()))  # a product with the mask would keep NaN
            code = encode(band).cpu()
            if gamma is None and half_width == size - 1:  # the band includes every pair
                gamma = distributions.band_gamma(band)
            gamma = validate_gamma(gamma, size)
        except ValueError as error:
            raise ValueError(f"document {request.id!r}: {error}") from None
        digest = text_digest(request.text)
        return cls(request.id, digest, edus, tuple(relations), rows=rows, tree=tree, ldd=code, gamma=gamma)

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
        """Size of all tensors in bytes."""
        return sum(tensor.nbytes for tensor in (self.edus, self.tree, self.ldd, self.gamma))

    def band(self, half_width: int) -> Tensor:
        """Return the LDD band, float32 [E, 2b + 1, R], of a half-width b in EDUs.

        Entry [i, b + d, l] is p(edu_i, edu_(i + d), l), zero for d = 0 and outside the document.

        Raises:
            ValueError: if the stored band lacks pairs of the document within the half-width.
        """
        return decode(self.code(half_width))

    def code(self, half_width: int) -> Tensor:
        """Return the band of a half-width b with one byte per value, uint8 [E, 2b + 1, R], see `distributions.decode`.

        Raises:
            ValueError: if the stored band lacks pairs within the half-width, which must cover the attention window.
        """
        if min(half_width, self.size - 1) > self.half_width:
            raise ValueError(
                f"document {self.id!r}: {half_width} EDUs to each side are needed, but its parse has only"
                f" {self.half_width}; parse again with --band {half_width}, or use a smaller window"
            )
        return resize(self.ldd, half_width)

    def dense(self) -> Tensor:
        """Return the LDD of all pairs, float32 [E, E, R]; for short documents, as its size grows with the square of E.

        Raises:
            ValueError: if the stored band is narrower than the document.
        """
        return distributions.to_dense(self.band(max(0, self.size - 1)))

    def best_tree(self) -> Tree:
        """Return the best tree, with names of nuclearities and relations instead of ids."""
        spans = []
        for start, split, end, nuclearity, relation in self.tree.tolist():
            spans.append(Span(start, split, end, NUCLEARITIES[nuclearity], relation=self.relations[relation]))
        return Tree.from_spans(spans, self.size)


def nodes_of(tree: Tree, relations: Sequence[str]) -> Tensor:
    """Return the nodes (start, split, end, nuclearity, relation) of a tree, see `DiscourseParse.tree`, [E - 1, 5].

    Raises:
        ValueError: if a relation is not in `relations`.
    """
    relation_ids = {name: i for i, name in enumerate(relations)}
    nodes = []
    for start, split, end, nuclearity, relation in tree.spans():
        if relation not in relation_ids:
            raise ValueError(f"relation {relation!r} is not one of {', '.join(relations)}")
        nodes.append((start, split, end, NUCLEARITIES.index(nuclearity), relation_ids[relation]))
    return torch.tensor(nodes, dtype=torch.int32).reshape(-1, 5)  # [0, 5] for a tree of one EDU


def validate_gamma(gamma: Tensor | None, size: int) -> Tensor:
    """Return gamma (importance of EDUs) as float32 [E] on the CPU, E = `size`; ValueError if missing or invalid."""
    if gamma is None:
        raise ValueError("its band does not include every pair of EDUs, so gamma must be given")
    if gamma.shape != (size,) or not (gamma >= -distributions.ROUNDING).all():  # this form also rejects NaN
        raise ValueError(f"gamma must be a non-negative number for each of {size} EDUs, got {gamma.tolist()[:5]} ...")
    return gamma.detach().float().clamp(min=0).cpu().contiguous()


def strip_edus(edus: Tensor, text: str) -> Tensor:
    """Strip whitespace at the ends of EDUs, offsets [E, 2] in `text`; ValueError if there is none or one is invalid."""
    if not len(edus):
        raise ValueError("there is no EDU; leave empty documents out")
    stripped, previous_end = [], 0
    for start, end in edus.tolist():
        if not previous_end <= start < end <= len(text):
            problem = f"the previous one ends at {previous_end}, the text at {len(text)}"
            raise ValueError(f"EDU [{start}, {end}) is empty, overlaps another or leaves the text ({problem})")
        edu_text = text[start:end]
        if not edu_text.strip():
            raise ValueError(f"EDU [{start}, {end}) has only whitespace")
        stripped.append((end - len(edu_text.lstrip()), start + len(edu_text.rstrip())))  # offsets without whitespace
        previous_end = end
    return torch.tensor(stripped, dtype=torch.int32)


def align(offsets: Tensor, edus: Tensor) -> Tensor:
    """Return the index of the first EDU that each token overlaps, int64 [T]; -1 for special tokens and tokens in none.

    EDUs neither begin nor end with whitespace, so a token " word" that includes the preceding space, as in byte-level
    BPE, is aligned with the EDU of the word even if the space belongs to no EDU.

    Args:
        offsets: character offsets of tokens, [T, 2]; empty for special tokens.
        edus: character offsets of EDUs, in order and disjoint, [E, 2].
    """
    start, end = offsets.long().unbind(-1)  # each [T]
    edu_start, edu_end = edus.long().T.contiguous()  # each [E]
    index = torch.searchsorted(edu_end, start.contiguous(), right=True)  # first EDU that ends after the token begins
    candidate = index.clamp(max=len(edus) - 1)  # index is E for tokens after the last EDU
    overlaps = (index < len(edus)) & (edu_start[candidate] < end) & (start < end)
    return torch.where(overlaps, candidate, -1)


def reach_by_document(token_edu: Tensor, window: int) -> Tensor:
    """Return the largest distance, in EDUs, between two tokens of a document that attend to each other, for each, [B].

    A token attends to `window` tokens on each side. `token_edu` is the index of the EDU (elementary discourse unit) of
    each token, in the order of the text, -1 for none, [B, T].
    """
    length = token_edu.shape[1]
    if not length:
        return token_edu.new_zeros(len(token_edu))
    highest = token_edu.cummax(1).values  # [B, T]; tokens in no EDU (-1) count as part of the EDU before them
    last = (torch.arange(length, device=token_edu.device) + window).clamp(max=length - 1)  # of each window, [T]
    # to the last EDU that a window reaches; the first one need not be checked, as it occurs with both tokens exchanged
    return (highest[:, last] - token_edu).masked_fill(token_edu < 0, 0).amax(1)
