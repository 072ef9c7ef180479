"""Selection of scored sentences: top-k, trigram blocking, maximal marginal relevance, triangles."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Selector = Literal["top_k", "trigram_blocking", "mmr", "triangle"]
SELECTORS: tuple[Selector, ...] = ("top_k", "trigram_blocking", "mmr", "triangle")


@dataclass(frozen=True)
class SelectionOptions:
    """Options of sentence selection, see `select`.

    Attributes:
        selector: `top_k`, `trigram_blocking`, `mmr` or `triangle`.
        k: maximal number of sentences of a summary.
        mmr_form: `penalty`, s_i - lambda max sim; or `classic`, lambda s_i - (1 - lambda) max sim.
        trade_off: lambda of `mmr` and `triangle`.
        order: order of the sentences: as in the `document`, or by `score`, as they were selected.
    """

    selector: Selector = "top_k"
    k: int = 3
    mmr_form: Literal["penalty", "classic"] = "classic"
    trade_off: float = 0.7
    order: Literal["document", "score"] = "document"

    def __post_init__(self) -> None:
        if self.selector not in SELECTORS:
            raise ValueError(f"no selector {self.selector!r}; there are {', '.join(SELECTORS)}")
        if self.k < 1:
            raise ValueError(f"a summary has at least one sentence, got k = {self.k}")
        if self.trade_off < 0 or (self.selector == "mmr" and self.mmr_form == "classic" and self.trade_off > 1):
            raise ValueError(f"trade_off must be at least 0, and in classic MMR at most 1; got {self.trade_off}")
        if self.mmr_form not in ("penalty", "classic") or self.order not in ("document", "score"):
            raise ValueError(f"mmr_form {self.mmr_form!r}, order {self.order!r}: no such form or order")


class Relations(NamedTuple):
    """Relations of sentences with each other and with their document."""

    similarity: Tensor  # cosines between sentences, [B, L, L]
    to_document: Tensor  # cosines of sentences and document, [B, L]
    shared: Tensor  # True where two sentences have a trigram in common, [B, L, L]


def angular_distance(cosine: Tensor) -> Tensor:
    """Return d = arccos(cos) / pi, in [0, 1]; unlike 1 - cos, it is a metric on directions."""
    return cosine.clamp(-1, 1).arccos() / torch.pi


def shared_path(similarity: Tensor, to_document: Tensor) -> Tensor:
    """Return the fraction of the path from the document to one sentence that also leads to the other, in [0, 1].

    With d the angular distance, r_i = d(i, document) and the Gromov product (i|j) = (r_i + r_j - d(i, j)) / 2,

        g_ij = (i|j) / min(r_i, r_j).

    The triangle inequality bounds it: d(i, j) <= r_i + r_j gives g >= 0 (equality: the sentences are on opposite sides
    of the document), and d(i, j) >= |r_i - r_j| gives (i|j) <= min(r_i, r_j), so g <= 1 (equality: one is on the path
    to the other, or they are equal). For a sentence equal to the document (r = 0), g = 1.

    Args:
        similarity: cosines between sentences, [B, L, L].
        to_document: cosines of sentences and document, [B, L].

    Returns:
        g, [B, L, L].
    """
    radius = angular_distance(to_document)                                           # [B, L]
    radius_i, radius_j = radius.unsqueeze(2), radius.unsqueeze(1)
    product = (radius_i + radius_j - angular_distance(similarity)) / 2               # [B, L, L]
    smaller = torch.minimum(radius_i, radius_j)
    # rounding may leave the bounds by a little
    return torch.where(smaller > 1e-6, product / smaller.clamp_min(1e-6), torch.ones_like(product)).clamp(0, 1)


def select(scores: Tensor, mask: Tensor, relations: Relations | None, options: SelectionOptions) -> Tensor:
    """Select at most k sentences of each document greedily.

    Each step takes the allowed sentence with the highest gain; ties go to the first.

    - `top_k`: the gain is the score s_i.
    - `trigram_blocking`: the same, but sentences that share a trigram with a selected one are not allowed (Paulus et
      al. 2018).
    - `mmr`: with R_i = max over selected j of cos(e_i, e_j), 0 for the first, s_i - lambda R_i (`penalty`) or
      lambda s_i - (1 - lambda) R_i (`classic`; Carbonell and Goldstein 1998).
    - `triangle`: s_i - lambda max over selected j of g_ij (`shared_path`). No formula is published under this name;
      this one is ours.

    Args:
        scores: s, [B, L].
        mask: True at sentences that may be selected, [B, L].
        relations: relations of the sentences; not needed by `top_k`.
        options: selector, k and lambda.

    Returns:
        Indices of sentences in the order of selection, [B, min(k, L)]; -1 if no sentence was allowed.
    """
    allowed = mask.clone()
    redundancy = torch.zeros_like(scores)
    overlap = _overlap(relations, options)
    rows = torch.arange(len(scores), device=scores.device)
    selected = []
    for _ in range(min(options.k, scores.shape[1])):
        gain = _gain(scores, redundancy, options).masked_fill(~allowed, float("-inf"))
        best = gain.argmax(1)                                                        # [B]
        found_one = allowed.any(1)
        selected.append(best.masked_fill(~found_one, -1))
        allowed[rows, best] = False
        if options.selector == "trigram_blocking":
            allowed &= ~(overlap[rows, best] & found_one.unsqueeze(1))
        elif overlap is not None:
            overlap_with_best = overlap[rows, best]                                  # [B, L]
            redundancy = overlap_with_best if len(selected) == 1 else torch.maximum(redundancy, overlap_with_best)
    return torch.stack(selected, 1) if selected else mask.new_zeros(len(mask), 0, dtype=torch.long)


def _overlap(relations: Relations | None, options: SelectionOptions) -> Tensor | None:
    if options.selector == "top_k":
        return None
    if options.selector == "trigram_blocking":
        return relations.shared
    if options.selector == "triangle":
        return shared_path(relations.similarity, relations.to_document)
    return relations.similarity


def _gain(scores: Tensor, redundancy: Tensor, options: SelectionOptions) -> Tensor:
    if options.selector == "mmr" and options.mmr_form == "classic":
        return options.trade_off * scores - (1 - options.trade_off) * redundancy
    if options.selector in ("mmr", "triangle"):
        return scores - options.trade_off * redundancy
    return scores
