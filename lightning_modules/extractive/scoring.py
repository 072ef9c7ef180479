"""Sentences as vectors and as scores: what extractive models pool, and what they rank by."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Pooling = Literal["cls", "mean", "max", "self_attention"]
Scoring = Literal["classifier", "document_cosine", "centrality"]
POOLINGS: tuple[Pooling, ...] = ("cls", "mean", "max", "self_attention")
SCORINGS: tuple[Scoring, ...] = ("classifier", "document_cosine", "centrality")


class Pooler(nn.Module):
    """One vector a group of tokens, such as a sentence.

    `cls`: the mean of the group's head tokens ([CLS]), of which there is one unless the sentence is read in pieces;
    `mean` and `max` of all its states; `self_attention`: sum_t a_t h_t with a = softmax_t(q h_t / sqrt(H)) and a
    learned q, which is zero at first (so that an untrained one is `mean`).

    Args:
        kind: which of them.
        size: H.

    Raises:
        ValueError: for another kind.
    """

    def __init__(self, kind: Pooling, size: int) -> None:
        super().__init__()
        if kind not in POOLINGS:
            raise ValueError(f"no pooling {kind!r}; there are {', '.join(POOLINGS)}")
        self.kind = kind
        self.query = nn.Parameter(torch.zeros(size)) if kind == "self_attention" else None

    def forward(self, states: Tensor, group: Tensor, heads: Tensor, groups: int) -> Tensor:
        """Vectors of all groups of all documents at once.

        Args:
            states: h, [B, T, H].
            group: of each token, -1 for none, [B, T].
            heads: True at head tokens, [B, T].
            groups: L, how many there are at most.

        Returns:
            [B, L, H]; zeros for a group without a token.
        """
        B, _, H = states.shape
        if self.kind == "cls":
            group = group.masked_fill(~heads, -1)
        # tokens of no group go to one row more a document, which is dropped
        group = group.masked_fill(group < 0, groups)                                 # [B, T]
        if self.kind == "max":
            index = group.unsqueeze(-1).expand_as(states)
            empty = states.new_zeros(B, groups + 1, H)
            return empty.scatter_reduce(1, index, states, "amax", include_self=False)[:, :groups]
        weights = states.new_ones(group.shape)                                       # [B, T]
        if self.query is not None:
            energy = (states @ self.query * H**-0.5).to(states.dtype)                # [B, T]
            most = energy.new_zeros(B, groups + 1).scatter_reduce(1, group, energy.detach(), "amax", include_self=False)
            weights = (energy - most.gather(1, group)).exp()
        totals = states.new_zeros(B, groups + 1).scatter_add(1, group, weights)      # [B, L + 1]
        rows = group + torch.arange(B, device=group.device).unsqueeze(1) * (groups + 1)
        sums = states.new_zeros(B * (groups + 1), H)
        sums = sums.index_add(0, rows.flatten(), (states * weights.unsqueeze(-1)).flatten(0, 1))
        found = totals.clamp_min(torch.finfo(totals.dtype).tiny).unsqueeze(-1)
        return (sums.view(B, groups + 1, H) / found)[:, :groups]


def cosines(vectors: Tensor, others: Tensor) -> Tensor:
    """Cosines of [..., L, H] and [..., M, H]: [..., L, M]; 0 where a vector is zero."""
    return F.normalize(vectors, dim=-1) @ F.normalize(others, dim=-1).transpose(-1, -2)


def document_cosine(sentences: Tensor, document: Tensor) -> Tensor:
    """cos(e_i, D): sentences [B, L, H] and documents [B, H] -> [B, L]."""
    return cosines(sentences, document.unsqueeze(1)).squeeze(-1)


def centrality(sentences: Tensor, mask: Tensor) -> Tensor:
    """The mean cosine of a sentence to the others, [B, L, H] -> [B, L]; 0 where there are no others.

    Args:
        sentences: vectors.
        mask: True at sentences, [B, L].
    """
    both = mask.unsqueeze(1) & mask.unsqueeze(2)                                     # [B, L, L]
    both = (both & ~torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)).to(sentences.dtype)
    return (cosines(sentences, sentences) * both).sum(-1) / both.sum(-1).clamp_min(1)


class SentenceScorer(nn.Module):
    """A logit a sentence, to be put through a sigmoid.

    `classifier`: w e_i + b. The others are cosines, a c_i + b with a learned slope and offset, which change no ranking
    while a is positive: `document_cosine`, c_i = cos(e_i, D); `centrality`, the mean cosine to the other sentences.

    Args:
        kind: which of them.
        size: H.

    Raises:
        ValueError: for another kind.
    """

    def __init__(self, kind: Scoring, size: int) -> None:
        super().__init__()
        if kind not in SCORINGS:
            raise ValueError(f"no scoring {kind!r}; there are {', '.join(SCORINGS)}")
        self.kind = kind
        if kind == "classifier":
            self.linear = nn.Linear(size, 1)
        else:
            self.slope, self.offset = nn.Parameter(torch.tensor(5.0)), nn.Parameter(torch.tensor(0.0))

    def forward(self, sentences: Tensor, document: Tensor, mask: Tensor) -> Tensor:
        """Logits of sentences.

        Args:
            sentences: e, [B, L, H].
            document: D, [B, H].
            mask: True at sentences, [B, L].

        Returns:
            [B, L]; of no meaning where there is no sentence.
        """
        if self.kind == "classifier":
            return self.linear(sentences).squeeze(-1)
        cosine = document_cosine(sentences, document) if self.kind == "document_cosine" else centrality(sentences, mask)
        return self.slope * cosine + self.offset
