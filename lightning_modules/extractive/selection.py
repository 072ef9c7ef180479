"""Selection of scored sentences: top-k, trigram blocking, maximal marginal relevance, triangles; length budgets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from datamodules.batch import pad
from datamodules.text.language import length_words
from lightning_modules.extractive.names import SELECTORS, Selector


@dataclass(frozen=True)
class SelectionOptions:
    """Options of sentence selection, see `select`.

    Attributes:
        selector: `top_k`, `trigram_blocking`, `mmr` or `triangle`.
        k: maximum number of sentences of a summary; a large one leaves the limit to the budgets.
        mmr_form: score minus redundancy R: `penalty`, s_i - lambda R_i; or `classic`, lambda s_i - (1 - lambda) R_i.
        trade_off: lambda of `mmr` and `triangle`; at most 1 in `classic`, where 1 - lambda is a weight, too.
        order: order of the sentences: as in the `document`, or by `score`, as they were selected.
        words: maximum number of words (`length_words`) of a summary; 0 for no limit.
        ratio: maximum number of words, as a share of the words that the model reads of the document (the compression
            ratio); 0 for no limit.
        share: maximum number of sentences, as a share of the sentences that the model reads, rounded; 0 for no limit.
        min_score: minimum score of a selected sentence; scores of BertSum are in [0, 1].
    """

    selector: Selector = "top_k"
    k: int = 3
    mmr_form: Literal["penalty", "classic"] = "classic"
    trade_off: float = 0.7
    order: Literal["document", "score"] = "document"
    words: int = 0
    ratio: float = 0.0
    share: float = 0.0
    min_score: float = 0.0

    def __post_init__(self) -> None:
        if self.selector not in SELECTORS:
            raise ValueError(f"no selector {self.selector!r}; there are {', '.join(SELECTORS)}")
        if self.k < 1:
            raise ValueError(f"a summary has at least one sentence, got k = {self.k}")
        for name in ("words", "min_score"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is at least 0, got {name} = {getattr(self, name)}")
        for name in ("ratio", "share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a share of the document, between 0 and 1; got {getattr(self, name)}")
        if self.trade_off < 0 or (self.selector == "mmr" and self.mmr_form == "classic" and self.trade_off > 1):
            raise ValueError(f"trade_off must be at least 0, and in classic MMR at most 1; got {self.trade_off}")
        if self.mmr_form not in ("penalty", "classic") or self.order not in ("document", "score"):
            raise ValueError(f"mmr_form {self.mmr_form!r}, order {self.order!r}: no such form or order")


class Relations(NamedTuple):
    """Relations of sentences with each other and with their document."""

    similarity: Tensor  # cosines between the L sentences of each document, [B, L, L]
    to_document: Tensor  # cosines of sentences and document, [B, L]
    shared: Tensor  # True where two sentences have a trigram in common, [B, L, L]


def angular_distance(cosine: Tensor) -> Tensor:
    """Return d = arccos(cosine) / pi, in [0, 1]; unlike 1 - cosine, it is a metric: the triangle inequality holds."""
    return cosine.clamp(-1, 1).arccos() / torch.pi


def shared_path(similarity: Tensor, to_document: Tensor) -> Tensor:
    """Return the common length of the paths from the document to sentences i and j over the shorter length, [B, L, L].

    With d the angular distance, r_i = d(i, document) and (i|j) = (r_i + r_j - d(i, j)) / 2, their Gromov product,

        g_ij = (i|j) / min(r_i, r_j), in [0, 1].

    The triangle inequality bounds it: d(i, j) <= r_i + r_j gives g >= 0 (equality: the sentences are on opposite sides
    of the document), and d(i, j) >= |r_i - r_j| gives (i|j) <= min(r_i, r_j), so g <= 1 (equality: one is on the path
    to the other, or they are equal). For a sentence equal to the document (r = 0), g = 1.
    """
    radius = angular_distance(to_document)                                           # [B, L]
    radius_i, radius_j = radius.unsqueeze(2), radius.unsqueeze(1)
    product = (radius_i + radius_j - angular_distance(similarity)) / 2               # (i|j), [B, L, L]
    smaller = torch.minimum(radius_i, radius_j)
    # a radius below 1e-3 is 0 up to rounding: in float32, the cosine of equal vectors may be 1 - 1e-6, so r = 4.5e-4
    return torch.where(smaller > 1e-3, product / smaller.clamp_min(1e-3), torch.ones_like(product)).clamp(0, 1)


def chosen_sentences(
    documents: Sequence[Sequence[str]],
    scores: Tensor,  # of up to L sentences of each document, [B, L]
    mask: Tensor,  # True at sentences that may be selected, [B, L]
    relations: Relations | None,  # None for `top_k`, which needs none
    options: SelectionOptions,
) -> list[list[int]]:
    """Return the indices of the selected sentences of each document, in their order in the summary, see `select`."""
    counts = [[len(length_words(text)) for text in sentences] for sentences in documents]  # words, for the budgets
    selected = select(scores, mask, relations, options, pad(counts).to(scores.device)).tolist()
    chosen = [[index for index in indices if index >= 0] for indices in selected]  # without -1, for no sentence
    return list(map(sorted, chosen)) if options.order == "document" else chosen


def select(
    scores: Tensor, mask: Tensor, relations: Relations | None, options: SelectionOptions, words: Tensor | None = None
) -> Tensor:
    """Select sentences of each document greedily, within the limits of the options.

    Returns their indices in the order of selection, [B, min(k, L)], -1 at steps without an allowed sentence. Each step
    takes the allowed sentence with the highest gain, the first one of equal ones. With lambda = `trade_off`:

    - `top_k`: the gain is the score s_i.
    - `trigram_blocking`: the gain is s_i, but sentences that share a trigram with a selected one are not allowed
      (Paulus et al. 2018).
    - `mmr`: with the redundancy R_i = max over selected j of cos(e_i, e_j), 0 at the first step, the gain is
      s_i - lambda R_i (`penalty`) or lambda s_i - (1 - lambda) R_i (`classic`; Carbonell and Goldstein 1998).
    - `triangle`: s_i - lambda R_i with R_i = max over selected j of the `shared_path` g_ij. No formula is published
      under this name; this one is ours.

    A sentence that would exceed the budget of words is passed over for the next best that fits. A document has at least
    one sentence in its summary: if none is within the limits, the one with the highest gain.

    The scores s, the mask of sentences that may be selected, and the number of words, for budgets, are [B, L].
    """
    within_limits, remaining_words = _limit(scores, mask, options, words)                        # [B, L], [B] or None
    selectable = torch.where(within_limits.any(1, keepdim=True), within_limits, mask)            # [B, L]
    redundancy = torch.zeros_like(scores)  # maximum overlap with a selected sentence, R of the docstring
    overlap = _overlap(relations, options)                                                       # [B, L, L] or None
    documents = torch.arange(len(scores), device=scores.device)
    selected = []
    for step in range(min(options.k, scores.shape[1])):
        if options.share and step:  # at least one sentence is selected; padding has no words, so it does not count
            max_sentences = ((words > 0).sum(1) * options.share).round()
            selectable &= (step < max_sentences).unsqueeze(1)
        gain = _gain(scores, redundancy, options).masked_fill(~selectable, float("-inf"))
        best = gain.argmax(1)                                                                    # [B]
        is_selected = selectable.any(1)  # False where no sentence is left, and `best` means nothing
        selected.append(best.masked_fill(~is_selected, -1))
        selectable = selectable & within_limits
        selectable[documents, best] = False
        if remaining_words is not None:
            remaining_words = remaining_words - words[documents, best] * is_selected
            selectable &= words <= remaining_words.unsqueeze(1)
        if options.selector == "trigram_blocking":
            selectable &= ~(overlap[documents, best] & is_selected.unsqueeze(1))
        elif overlap is not None:
            overlap_with_best = overlap[documents, best]                                         # [B, L]
            # the first overlap may be negative, as a cosine
            redundancy = overlap_with_best if step == 0 else torch.maximum(redundancy, overlap_with_best)
    return torch.stack(selected, 1) if selected else mask.new_zeros(len(mask), 0, dtype=torch.long)


def _limit(
    scores: Tensor, mask: Tensor, options: SelectionOptions, words: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Return which sentences by themselves keep the limits, [B, L], and word budgets, [B] or None; `words`: [B, L]."""
    allowed = mask.clone()
    budget = None
    if options.min_score:
        allowed &= scores >= options.min_score
    if options.words or options.ratio:
        budget = torch.full_like(words[:, 0], options.words or torch.iinfo(words.dtype).max)  # max: no limit
        if options.ratio:
            share = words.sum(1) * options.ratio + 1e-3  # 28.9999 by rounding errors counts as 29
            budget = torch.minimum(budget, share.floor().long())
        allowed &= words <= budget.unsqueeze(1)
    return allowed, budget


def _overlap(relations: Relations | None, options: SelectionOptions) -> Tensor | None:
    """Return the overlap of each two sentences, which the selector avoids, [B, L, L] (bool: trigrams), or None."""
    if options.selector == "top_k":
        return None
    if options.selector == "trigram_blocking":
        return relations.shared  # a trigram in common
    if options.selector == "triangle":
        return shared_path(relations.similarity, relations.to_document)  # g_ij of `select`
    return relations.similarity


def _gain(scores: Tensor, redundancy: Tensor, options: SelectionOptions) -> Tensor:
    """Return the gain of each sentence, which `select` maximizes: scores and redundancy [B, L] -> [B, L]."""
    if options.selector == "mmr" and options.mmr_form == "classic":
        return options.trade_off * scores - (1 - options.trade_off) * redundancy
    if options.selector in ("mmr", "triangle"):
        return scores - options.trade_off * redundancy
    return scores
