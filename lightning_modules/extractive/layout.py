"""Layout of a document: where its sentences stand, how long they are, and how near they are to its topic."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NUM_TEXT_FEATURES = 11
_NUM_FEATURES = NUM_TEXT_FEATURES + 4  # centralities, see `Layout`
_HIDDEN = 64
_MIN_WORDS = 4  # of a sentence of prose; shorter lines are headings, greetings or signatures
_MAX_WORDS = 80  # longer sentences count as this long
_ENDS = tuple(".!?\"'”’:)")


def text_features(documents: Sequence[Sequence[str]]) -> Tensor:
    """Return features of sentences from their texts, positions and neighbors, [B, L, 11]; 0 at padding.

    Positions are counted over sentences of prose, so that titles, bylines and greetings do not move the beginning.

    Args:
        documents: sentences of each document.
    """
    width = max(1, *map(len, documents)) if documents else 1
    features = torch.zeros(len(documents), width, NUM_TEXT_FEATURES)
    for row, sentences in enumerate(documents):
        if sentences:
            features[row, : len(sentences)] = _features_of(sentences)
    return features


def _features_of(sentences: Sequence[str]) -> Tensor:
    """Return the features of one document, [L, 11]."""
    words = torch.tensor([min(len(sentence.split()), _MAX_WORDS) for sentence in sentences]).float()
    ends = torch.tensor([sentence.rstrip().endswith(_ENDS) for sentence in sentences]).float()
    prose = (words >= _MIN_WORDS).float() * ends                                    # [L]
    before = prose.cumsum(0) - prose  # sentences of prose before each one
    size = prose.sum().clamp(min=1)
    mean_words = (words * prose).sum() / size if prose.any() else words.mean()
    return torch.stack(
        [
            before / size,
            (before + 1).log() / 3,
            (size - before).clamp(min=1).log() / 5,
            (before == 0).float() * prose,
            prose,
            size.log().expand_as(before) / 5,
            words.clamp(min=1).log() / math.log(_MAX_WORDS),
            (words < _MIN_WORDS).float(),
            ends,
            (mean_words / 25).expand_as(before),
            (words > 2 * mean_words).float(),
        ],
        1,
    )


class Layout(nn.Module):
    """Embedding of the layout of sentences, which takes the place of their positions.

    The network sees the features of `text_features` and the centrality of each sentence: its cosine with the mean of
    the sentences of prose, and its mean cosine with all sentences, both as they are and standardized in the document.

    Args:
        size: width of the embedding.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(_NUM_FEATURES, _HIDDEN), nn.Linear(_HIDDEN, size)

    def forward(self, features: Tensor, vectors: Tensor, mask: Tensor) -> Tensor:
        """Return the embeddings of sentences.

        Args:
            features: `text_features` of the documents, [B, L, 11].
            vectors: vectors of sentences, [B, L, H].
            mask: True at sentences, [B, L].

        Returns:
            [B, L, D].
        """
        central = centralities(vectors, features[..., 4], mask)                     # [B, L, 4]
        x = torch.cat([features.to(central), central], -1)
        return self.outer(F.gelu(self.inner(x)))


def centralities(vectors: Tensor, prose: Tensor, mask: Tensor) -> Tensor:
    """Return the centralities of `Layout`: [B, L, H], prose [B, L], mask [B, L] -> [B, L, 4]."""
    real = mask.to(vectors.dtype)                                                   # [B, L]
    unit = F.normalize(vectors, dim=-1) * real.unsqueeze(-1)
    weights = torch.where(prose.any(1, keepdim=True), prose.to(real) * real, real)
    topic = F.normalize((unit * weights.unsqueeze(-1)).sum(1), dim=-1)              # [B, H]
    to_topic = (unit @ topic.unsqueeze(-1)).squeeze(-1)                             # [B, L]
    # cosines with the others, without the sentence itself; negative ones count as 0
    similar = (unit @ unit.transpose(1, 2)).clamp(min=0)                            # [B, L, L]
    counts = (real.sum(1, keepdim=True) - 1).clamp(min=1)
    to_others = (similar.sum(-1) - real) / counts * 5
    columns = [to_topic, _standardized(to_topic, real), to_others, _standardized(to_others, real)]
    return torch.stack(columns, -1) * real.unsqueeze(-1)


def _standardized(values: Tensor, real: Tensor) -> Tensor:
    """Return values [B, L] with mean 0 and variance 1 over the real sentences of each document."""
    counts = real.sum(1, keepdim=True).clamp(min=1)
    mean = (values * real).sum(1, keepdim=True) / counts
    variance = ((values - mean).square() * real).sum(1, keepdim=True) / counts
    # the root of 0 has no gradient, as in documents of one sentence
    return (values - mean) / (variance.clamp(min=1e-12).sqrt() + 1e-3)
