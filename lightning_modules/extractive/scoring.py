"""Pooling and scoring of sentences in extractive models."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_modules.extractive.names import POOLINGS, SCORINGS, Pooling, Scoring


class Pooler(nn.Module):
    """Pooling of each group of tokens, such as a sentence, to a vector of H = `size`.

    `cls`: the state of the head token ([CLS]) of a group, or the mean of several if a sentence is split into pieces;
    `mean`, `max`: of all states; `self_attention`: sum_t a_t h_t with a = softmax_t(q h_t / sqrt(H)) and a learned q,
    which is initialized with zero (equal to `mean`). Another `kind` is a `ValueError`.
    """

    def __init__(self, kind: Pooling, size: int) -> None:
        super().__init__()
        if kind not in POOLINGS:
            raise ValueError(f"no pooling {kind!r}; there are {', '.join(POOLINGS)}")
        self.kind = kind
        self.query = nn.Parameter(torch.zeros(size)) if kind == "self_attention" else None

    def forward(self, states: Tensor, group: Tensor, heads: Tensor, groups: int) -> Tensor:
        """Return the vectors of L = `groups` groups of tokens of each document, [B, L, H]; zeros for empty groups.

        Args:
            states: hidden states h of tokens, [B, T, H].
            group: index of the group of each token, -1 for none, [B, T].
            heads: True at head tokens, [B, T].
        """
        B, _, H = states.shape
        if self.kind == "cls":
            group = group.masked_fill(~heads, -1)
        # tokens in no group are collected in an additional last group of each document, which is dropped at the end
        group = group.masked_fill(group < 0, groups)                                 # [B, T]
        if self.kind == "max":
            index = group.unsqueeze(-1).expand_as(states)
            empty = states.new_zeros(B, groups + 1, H)  # zeros, which stay where a group has no tokens
            return empty.scatter_reduce(1, index, states, "amax", include_self=False)[:, :groups]
        weights = states.new_ones(group.shape)                                       # a before normalization, [B, T]
        if self.query is not None:
            energy = (states @ self.query * H**-0.5).to(states.dtype)                # [B, T]
            maxima = energy.new_zeros(B, groups + 1)
            # each group's maximum, subtracted against overflow; detached, as it cancels in the quotient
            maxima = maxima.scatter_reduce(1, group, energy.detach(), "amax", include_self=False)
            weights = (energy - maxima.gather(1, group)).exp()
        totals = states.new_zeros(B, groups + 1).scatter_add(1, group, weights)      # sums of weights, [B, L + 1]
        flat_group = group + torch.arange(B, device=group.device).unsqueeze(1) * (groups + 1)  # index in batch, [B, T]
        sums = states.new_zeros(B * (groups + 1), H)
        sums = sums.index_add(0, flat_group.flatten(), (states * weights.unsqueeze(-1)).flatten(0, 1))
        denominators = totals.clamp_min(torch.finfo(totals.dtype).tiny).unsqueeze(-1)  # empty groups give 0, not NaN
        return (sums.view(B, groups + 1, H) / denominators)[:, :groups]


def pool_texts(pooler: Pooler, states: Tensor, mask: Tensor) -> Tensor:
    """Pool all tokens of each text, with the first as its head: states [B, T, H], mask [B, T] -> [B, H]."""
    heads = torch.zeros_like(mask)
    heads[:, 0] = True
    return pooler(states, torch.where(mask, 0, -1), heads, 1).squeeze(1)  # one group, 0; padding: -1


def cosines(vectors: Tensor, other_vectors: Tensor) -> Tensor:
    """Return cosines of all pairs of vectors: [..., L, H], [..., M, H] -> [..., L, M]; 0 for vectors of zeros."""
    return F.normalize(vectors, dim=-1) @ F.normalize(other_vectors, dim=-1).transpose(-1, -2)


def document_cosine(sentences: Tensor, document: Tensor) -> Tensor:
    """Return the cosine of each sentence with its document: [B, L, H], [B, H] -> [B, L]."""
    return cosines(sentences, document.unsqueeze(1)).squeeze(-1)


def centrality(sentences: Tensor, mask: Tensor) -> Tensor:
    """Return the mean cosine of each sentence with the others: [B, L, H], mask [B, L] -> [B, L]; 0 without others."""
    pairs = mask.unsqueeze(1) & mask.unsqueeze(2)  # True for two sentences, not padding, [B, L, L]
    pairs = (pairs & ~torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)).to(sentences.dtype)
    return (cosines(sentences, sentences) * pairs).sum(-1) / pairs.sum(-1).clamp_min(1)


class SentenceScorer(nn.Module):
    """Logits of sentences with vectors e_i in a document with vector D; a sigmoid turns them into probabilities.

    `classifier`: w e_i + b. The others are a c_i + b with learned a and b, which keep the ranking while a is positive:
    `document_cosine` with c_i = cos(e_i, D), `centrality` with the mean over j of cos(e_i, e_j).
    """

    def __init__(self, kind: Scoring, size: int) -> None:
        super().__init__()
        if kind not in SCORINGS:
            raise ValueError(f"unknown scoring {kind!r}; choose one of {', '.join(SCORINGS)}")
        self.kind = kind
        if kind == "classifier":
            self.linear = nn.Linear(size, 1)
        else:
            # with a slope a of 5, cosines give probabilities of 0.007 to 0.993; with 1, only 0.27 to 0.73
            self.slope = nn.Parameter(torch.tensor(5.0))
            self.offset = nn.Parameter(torch.tensor(0.0))

    def forward(self, sentences: Tensor, document: Tensor, mask: Tensor) -> Tensor:
        """Return logits, [B, L], from vectors of sentences [B, L, H] and documents [B, H]; undefined at padding."""
        if self.kind == "classifier":
            return self.linear(sentences).squeeze(-1)
        cosine = document_cosine(sentences, document) if self.kind == "document_cosine" else centrality(sentences, mask)
        return self.slope * cosine + self.offset
