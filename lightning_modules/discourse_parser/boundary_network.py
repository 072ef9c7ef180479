"""Network of the EDU segmenter: tag scores from word vectors."""

import torch
from torch import Tensor, nn

from lightning_modules.networks.dropout import Dropout
from lightning_modules.networks.recurrent import bidirectional

OTHER, BEGIN = 0, 1


def pool_pieces(vectors: Tensor, owners: Tensor, count: int) -> Tensor:
    """Average the subword vectors of each of N words: [P, D] -> [N, D]; zero for a word without subwords.

    `owners` has the index of the word of each subword, -1 for none, [P]; `count` is N.
    """
    in_word = owners >= 0
    vectors, owners = vectors[in_word], owners[in_word]
    sums = vectors.new_zeros(count, vectors.shape[1]).index_add(0, owners, vectors)
    sizes = torch.bincount(owners, minlength=count).clamp(min=1)
    return sums / sizes.unsqueeze(1)


class SegmentationNetwork(nn.Module):
    """Bidirectional LSTM over the words of a sentence, with a linear layer for tag scores.

    Word vectors have width D = `size` and a number of `layout` features; other arguments as of `EduSegmenter`.
    """

    def __init__(self, size: int, layout: int, projection: int = 160, hidden_size: int = 128, dropout: float = 0.3):
        super().__init__()
        self.project = nn.Sequential(nn.LayerNorm(size), Dropout(dropout), nn.Linear(size, projection), nn.GELU())
        self.dropout = Dropout(dropout)
        self.lstm = nn.LSTM(projection + layout, hidden_size, batch_first=True, bidirectional=True)
        self.score = nn.Linear(2 * hidden_size, 2)

    def words(self, vectors: Tensor, layout: Tensor) -> Tensor:
        """Return the LSTM input of each word: [N, D], [N, layout] -> [N, projection + layout]."""
        return torch.cat([self.dropout(self.project(vectors)), layout], -1)

    def forward(self, words: Tensor, rows: Tensor, lengths: Tensor, begins: Tensor) -> Tensor:
        """Return tag scores [C, T, 2]; the first word of a sentence can only be tagged as a beginning.

        Args:
            words: output of `words`, [N, projection + layout].
            rows: indices of the words of each chain, [C, T]; ignored at padding.
            lengths: number of words of each chain, at least 1, on the CPU, [C].
            begins: True at the first words of sentences, [N].
        """
        states = bidirectional(self.lstm, words[rows], lengths).states
        scores = self.score(self.dropout(states))                                            # [C, T, 2]
        impossible = torch.stack([begins[rows], torch.zeros_like(rows, dtype=torch.bool)], -1)
        return scores.masked_fill(impossible, float("-inf"))
