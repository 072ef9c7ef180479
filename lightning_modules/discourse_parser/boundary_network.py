"""From vectors of words to scores of tags: where elementary discourse units begin."""

import torch
from torch import Tensor, nn

from lightning_modules.networks.recurrent import bidirectional

OTHER, BEGIN = 0, 1


def pool_pieces(vectors: Tensor, owners: Tensor, count: int) -> Tensor:
    """The mean vector of the pieces of each word: [P, D], [P] -> [N, D]; zero for a word without any.

    Args:
        vectors: of the pieces.
        owners: the word that a piece is part of, -1 for none.
        count: N.
    """
    known = owners >= 0
    vectors, owners = vectors[known], owners[known]
    sums = vectors.new_zeros(count, vectors.shape[1]).index_add(0, owners, vectors)
    sizes = torch.bincount(owners, minlength=count).clamp(min=1)
    return sums / sizes.unsqueeze(1)


class SegmentationNetwork(nn.Module):
    """A bidirectional LSTM over the words of a sentence, and a score for each tag of each word.

    Args:
        size: D, width of a word's vector.
        layout: number of features of a word's place.
        projection: width that vectors are brought to.
        hidden_size: of each direction of the LSTM.
        dropout: of vectors, projections and states.
    """

    def __init__(self, size: int, layout: int, projection: int = 160, hidden_size: int = 128, dropout: float = 0.3):
        super().__init__()
        self.project = nn.Sequential(nn.LayerNorm(size), nn.Dropout(dropout), nn.Linear(size, projection), nn.GELU())
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(projection + layout, hidden_size, batch_first=True, bidirectional=True)
        self.score = nn.Linear(2 * hidden_size, 2)

    def words(self, vectors: Tensor, layout: Tensor) -> Tensor:
        """What the LSTM reads of each word: [N, D], [N, layout] -> [N, projection + layout]."""
        return torch.cat([self.dropout(self.project(vectors)), layout], -1)

    def forward(self, words: Tensor, rows: Tensor, lengths: Tensor, begins: Tensor) -> Tensor:
        """Scores of the tags; at the first word of a sentence nothing but a begin is possible.

        Args:
            words: what `words` gives, [N, projection + layout].
            rows: the words of each chain, [C, T]; anything behind its end.
            lengths: of the chains, [C], in the host's memory, 1 or more.
            begins: True at the first words of sentences, [N].

        Returns:
            [C, T, 2].
        """
        states = bidirectional(self.lstm, words[rows], lengths).states
        scores = self.score(self.dropout(states))                                            # [C, T, 2]
        impossible = torch.stack([begins[rows], torch.zeros_like(rows, dtype=torch.bool)], -1)
        return scores.masked_fill(impossible, float("-inf"))
