"""Ranker of sentences: one layer of attention into which discourse is injected as in RSTformer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout as drop
from torch.nn.functional import layer_norm
from torch.nn.utils.rnn import pad_sequence

from lightning_modules.rstformer.dense_attention import dense_attention
from lightning_modules.rstformer.injection import DiscourseInjection, View

Inputs = Literal["discourse alone", "vectors", "vectors and places"]
INPUTS = ("discourse alone", "vectors", "vectors and places")


@dataclass
class RankingBatch:
    """Documents, padded to S sentences.

    Attributes:
        vectors: [B, S, H].
        places: position and length, and other scores if there are any, [B, S, P].
        target: [B, S].
        mask: True at sentences, [B, S].
        band: distribution over sentences, [B, S, 2S - 1, R]; None for none.
    """

    vectors: Tensor
    places: Tensor
    target: Tensor
    mask: Tensor
    band: Tensor | None


def collate(
    vectors: Sequence[Tensor], places: Sequence[Tensor], targets: Sequence[Tensor], bands: Sequence[Tensor] | None
) -> RankingBatch:
    """Pad documents; `bands` have the width of the longest document already."""
    mask = pad_sequence([torch.ones(len(target), dtype=torch.bool) for target in targets], batch_first=True)
    padded = [pad_sequence(list(rows), batch_first=True) for rows in (vectors, places, targets)]
    return RankingBatch(*padded, mask, None if bands is None else pad_sequence(list(bands), batch_first=True))


def relation_sums(band: Tensor) -> Tensor:
    """Return how much each sentence is the nucleus and the satellite of the others by relation, on average.

    Args:
        band: p(s, s + d, l), [B, S, 2S - 1, R].

    Returns:
        [B, S, 2R], nuclei first.
    """
    size = band.shape[1]
    column = torch.arange(size) - torch.arange(size)[:, None] + size - 1              # [S, S]
    index = column[None, :, :, None].expand(len(band), -1, -1, band.shape[-1])
    dense = band.gather(2, index)                                                     # [B, S, S, R]
    as_nucleus, as_satellite = dense.sum(2), dense.sum(1)                             # [B, S, R]
    lengths = ((as_nucleus + as_satellite).sum(-1) > 0).sum(1).clamp(min=1)
    return torch.cat([as_nucleus, as_satellite], -1) / lengths[:, None, None]


def band_sums(band: Tensor) -> Tensor:
    """Return how much each sentence is the nucleus and the satellite of the others, on average, [B, S, 2].

    Args:
        band: p(s, s + d, l), [B, S, 2S - 1, R].
    """
    return relation_sums(band).unflatten(-1, (2, -1)).sum(-1)


class SentenceRanker(nn.Module):
    """One pre-norm Transformer layer over sentences and a score for each.

    Besides the sentences there is a token for the document, which is in no discourse unit: discourse leaves its
    attention scores unchanged, so that the weight on it tells how much the injected scores of the others sum to.

    Args:
        inputs: representation of a sentence; `discourse alone` is the same vector for all sentences.
        injection: injection of discourse into attention; None for plain attention.
        vector_size: H, the width of sentence vectors.
        with_sums: whether `band_sums` are another input.
        place_size: width of the places of sentences.
        size: width of the layer.
        heads: number of attention heads.
        dropout: dropout of inputs, attention and both sublayers.
    """

    def __init__(
        self,
        inputs: Inputs,
        injection: DiscourseInjection | None,
        vector_size: int,
        with_sums: bool = False,
        place_size: int = 4,
        size: int = 32,
        heads: int = 2,
        dropout: float = 0.3,
    ) -> None:
        super().__init__()
        self.inputs, self.injection, self.heads, self.dropout = inputs, injection, heads, dropout
        self.document, self.sentence = (nn.Parameter(torch.randn(size) * 0.1) for _ in range(2))
        self.vectors = None if inputs == "discourse alone" else nn.Linear(vector_size, size)
        self.places = nn.Linear(place_size, size) if inputs == "vectors and places" else None
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(3))
        self.project, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.feed_forward = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))
        self.score = nn.Linear(size, 1)
        self.sums = nn.Linear(2, size) if with_sums else None  # last, so that all else starts from the same weights

    def states(self, batch: RankingBatch) -> Tensor:
        """Return the document token and the sentences, [B, 1 + S, D]."""
        x = self.sentence.expand(*batch.mask.shape, -1)                               # [B, S, D]
        if self.vectors is not None:
            x = x + self.vectors(layer_norm(batch.vectors, batch.vectors.shape[-1:]))
        if self.places is not None:
            x = x + self.places(batch.places)
        if self.sums is not None:
            x = x + self.sums(band_sums(batch.band))
        x = drop(x, self.dropout, self.training)
        return torch.cat([self.document.expand(len(x), 1, -1), x], 1)

    def forward(self, batch: RankingBatch) -> Tensor:
        """Return the score of each sentence, [B, S]."""
        x = self.states(batch)
        x = x + self.attend(self.norms[0](x), batch)
        x = x + drop(self.feed_forward(self.norms[1](x)), self.dropout, self.training)
        return self.score(self.norms[2](x))[:, 1:].squeeze(-1)

    def attend(self, x: Tensor, batch: RankingBatch) -> Tensor:
        """Return the result of attention with discourse, [B, 1 + S, D]."""
        length = x.shape[1]
        mask = torch.cat([batch.mask.new_ones(len(x), 1), batch.mask], 1)             # [B, 1 + S]
        units = (torch.arange(length) - 1).expand(len(x), -1)  # -1 is no unit: the document token
        table = None if self.injection is None else self.injection(batch.band)
        q, k, v = self.project(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        share = self.dropout if self.training else 0.0
        scaled = q / q.shape[-1] ** 0.5
        out = dense_attention(scaled, k, v, View.of(mask, token_edu=units), table, length, share)
        return drop(self.out(out.transpose(1, 2).flatten(2)), self.dropout, self.training)
