"""Embedding of the layout of documents (`sentence_layout`), and how near their sentences are to the topic."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.text.sentence_layout import LOG_BEFORE, LOG_SIZE, PROSE, TEXTRANK

_HIDDEN = 64  # width of the hidden layer
_LEAD_SENTENCES = 30  # in longer documents, `lead_prior` favors the beginning less


class LayoutEmbedding(nn.Module):
    """Embedding of the layout of sentences, which replaces position embeddings.

    A network maps `layout_features` (position, length, ...) and `centralities` (cosines with the topic and with other
    sentences) of each sentence to width D = `size`. With `ranks`, its TextRank and LexRank are inputs, too.
    """

    def __init__(self, size: int, ranks: bool = False) -> None:
        super().__init__()
        self.ranks = ranks
        self.inner = nn.Linear(TEXTRANK + (8 if ranks else 4), _HIDDEN)  # 11 features, 4 centralities, 2 ranks twice
        self.outer = nn.Linear(_HIDDEN, size)

    def forward(self, features: Tensor, vectors: Tensor, mask: Tensor) -> Tensor:
        """Return embeddings [B, L, D] from `layout_features` [B, L, 13], vectors [B, L, H] and a mask [B, L]."""
        central = centralities(vectors, features[..., PROSE], mask)                 # [B, L, 4]; `PROSE` flags prose
        real = mask.to(features.dtype)                                              # 1, or 0 at padding, [B, L]
        columns = [features[..., :TEXTRANK]]  # all but the ranks, [B, L, 11]
        for rank in features[..., TEXTRANK:].unbind(-1) if self.ranks else ():  # TextRank, then LexRank, [B, L]
            columns.append(torch.stack([rank, _standardized(rank, real) * real], -1))  # [B, L, 2]
        x = torch.cat([column.to(central) for column in columns] + [central], -1)
        return self.outer(F.gelu(self.inner(x)))                                    # [B, L, D]


def centralities(vectors: Tensor, prose: Tensor, mask: Tensor) -> Tensor:
    """Return cosine to topic, mean cosine to others, both also standardized: [B, L, H], flags [B, L] -> [B, L, 4]."""
    real = mask.to(vectors.dtype)                                                   # 1, or 0 at padding, [B, L]
    unit = F.normalize(vectors, dim=-1) * real.unsqueeze(-1)
    # the topic is computed from sentences of prose, without headings and the like
    weights = torch.where(prose.any(1, keepdim=True), prose.to(real) * real, real)  # all sentences if none is prose
    topic = F.normalize((unit * weights.unsqueeze(-1)).sum(1), dim=-1)  # mean direction of prose, [B, H]
    to_topic = (unit @ topic.unsqueeze(-1)).squeeze(-1)                             # [B, L]
    # mean cosine with the other sentences, negative cosines as 0; `- real` subtracts the cosine of 1 with itself
    similar = (unit @ unit.transpose(1, 2)).clamp(min=0)                            # [B, L, L]
    counts = (real.sum(1, keepdim=True) - 1).clamp(min=1)
    to_others = (similar.sum(-1) - real) / counts * 5  # the factor 5 makes it about as large as `to_topic`, [B, L]
    columns = [to_topic, _standardized(to_topic, real), to_others, _standardized(to_others, real)]
    return torch.stack(columns, -1) * real.unsqueeze(-1)


def lead_prior(features: Tensor, vectors: Tensor, mask: Tensor, strength: float) -> Tensor:
    """Return a prior to add to the logits of sentences, [B, L], for documents of genres that training did not have.

    With n sentences of prose (the lead counts less if there are more than 30), p_i of them before sentence i, it is

        cos(e_i, topic) - strength log(1 + p_i) min(1, 30 / n).

    The topic is the mean direction of the vectors e of prose, [B, L, H]; `features`: `layout_features`, [B, L, 13].
    """
    to_topic = centralities(vectors, features[..., PROSE], mask)[..., 0]            # [B, L]
    # `layout_features` has log(1 + p_i) / 3 and log(n) / 5
    log_before, size = 3 * features[..., LOG_BEFORE], (5 * features[..., LOG_SIZE]).exp()  # log(1 + p_i), n
    return to_topic - strength * log_before * (_LEAD_SENTENCES / size).clamp(max=1)


def _standardized(values: Tensor, real: Tensor) -> Tensor:
    """Shift and scale values [B, L] to mean 0, variance 1 in each document; `real`: 1 at sentences, 0 at padding."""
    counts = real.sum(1, keepdim=True).clamp(min=1)
    mean = (values * real).sum(1, keepdim=True) / counts
    variance = ((values - mean).square() * real).sum(1, keepdim=True) / counts
    # in a document of one sentence the variance is 0, where the square root has no finite gradient, and 0 / 0 is NaN
    return (values - mean) / (variance.clamp(min=1e-12).sqrt() + 1e-3)
