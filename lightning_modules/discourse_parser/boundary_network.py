"""Network of the EDU segmenter: tag scores from word vectors, and a conditional random field over the tags."""

import torch
from torch import Tensor, nn

from lightning_modules.networks.dropout import Dropout
from lightning_modules.networks.recurrent import bidirectional

OTHER, BEGIN = 0, 1


def pool_pieces(vectors: Tensor, words: Tensor, count: int) -> Tensor:
    """Average P subword vectors over the subwords of each of N words: [P, D] -> [N, D]; zero for a word without any.

    `words` has the index of the word of each subword, -1 for none, [P]; `count` is N.
    """
    in_word = words >= 0
    vectors, words = vectors[in_word], words[in_word]
    sums = vectors.new_zeros(count, vectors.shape[1]).index_add(0, words, vectors)
    num_subwords = torch.bincount(words, minlength=count).clamp(min=1)               # [N]
    return sums / num_subwords.unsqueeze(1)


class SegmentationNetwork(nn.Module):
    """Bidirectional LSTM over the words of a sentence, with a linear layer for tag scores.

    A word has a vector of width D = `size`, and `layout` layout features; other arguments as of `EduSegmenter`.
    """

    def __init__(self, size: int, layout: int, projection: int = 160, hidden_size: int = 128, dropout: float = 0.3):
        super().__init__()
        self.project = nn.Sequential(nn.LayerNorm(size), Dropout(dropout), nn.Linear(size, projection), nn.GELU())
        self.dropout = Dropout(dropout)
        self.lstm = nn.LSTM(projection + layout, hidden_size, batch_first=True, bidirectional=True)
        self.score = nn.Linear(2 * hidden_size, 2)

    def words(self, vectors: Tensor, layout: Tensor) -> Tensor:
        """Return the LSTM input from vectors and layout: [N, D], [N, layout] -> [N, projection + layout]."""
        return torch.cat([self.dropout(self.project(vectors)), layout], -1)

    def forward(self, words: Tensor, rows: Tensor, lengths: Tensor, begins: Tensor) -> Tensor:
        """Return the scores of the tags `OTHER` and `BEGIN` of C sentences of up to T words, [C, T, 2].

        Args:
            words: output of the method `words` for N words, [N, projection + layout].
            rows, lengths: indices of each sentence's words, [C, T]; number of its words, at least 1, on the CPU, [C].
            begins: True at the first word of a sentence, which must have the tag `BEGIN`, bool [N].
        """
        states = bidirectional(self.lstm, words[rows], lengths).states                       # [C, T, 2 hidden_size]
        scores = self.score(self.dropout(states))                                            # [C, T, 2]
        impossible = torch.stack([begins[rows], torch.zeros_like(rows, dtype=torch.bool)], -1)  # OTHER at begins
        return scores.masked_fill(impossible, float("-inf"))


class LinearChainCRF(nn.Module):
    """log p(y | x) = s(x, y) - log sum_y' s(x, y') over the tags of a chain.

        s(x, y) = start[y_1] + sum_t emissions[t, y_t] + sum_t transitions[y_t, y_t+1] + end[y_T]

    Parameters have the names and meaning of AllenNLP's `ConditionalRandomField`. An impossible tag has an emission of
    -inf; at every position at least one tag of the K must be possible.
    """

    def __init__(self, num_tags: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(num_tags, num_tags))  # [previous tag, next tag]
        self.start_transitions = nn.Parameter(torch.zeros(num_tags))
        self.end_transitions = nn.Parameter(torch.zeros(num_tags))

    def log_likelihood(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Return the sum of log p(y | x) over chains, a scalar, from scores of tags [C, T, K] and gold tags [C, T].

        The mask is True at positions of the chain, which precede padding, [C, T]; no chain is empty.
        """
        return (self._score(emissions, tags, mask) - self._normalizer(emissions, mask)).sum()

    def _score(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Return s(x, y) of the class docstring for the gold tags, [C]."""
        scores = emissions.gather(-1, tags.unsqueeze(-1)).squeeze(-1).masked_fill(~mask, 0)  # [C, T]
        moves = self.transitions[tags[:, :-1], tags[:, 1:]].masked_fill(~mask[:, 1:], 0)     # [C, T - 1]
        last = tags.gather(1, mask.sum(1, keepdim=True) - 1).squeeze(1)                      # [C]
        return self.start_transitions[tags[:, 0]] + scores.sum(1) + moves.sum(1) + self.end_transitions[last]

    def _normalizer(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """Return log sum_y exp(s(x, y)) over all tag sequences y (forward algorithm), [C]."""
        alpha = self.start_transitions + emissions[:, 0]  # log sum over the tags before, for each last tag, [C, K]
        for t in range(1, emissions.shape[1]):
            extended = torch.logsumexp(alpha.unsqueeze(2) + self.transitions, 1) + emissions[:, t]
            alpha = torch.where(mask[:, t, None], extended, alpha)  # padding leaves alpha as it is
        return torch.logsumexp(alpha + self.end_transitions, 1)                              # [C]

    @torch.no_grad()
    def decode(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """Return the most probable tags of chains (Viterbi): scores [C, T, K], mask [C, T] -> [C, T], 0 at padding."""
        chains, length, _ = emissions.shape
        best = self.start_transitions + emissions[:, 0]  # score of the best tags up to t, for each last tag, [C, K]
        previous_tags = []  # best tag before each tag, [C, K] for t = 1, 2, ...
        for t in range(1, length):
            scores, previous = (best.unsqueeze(2) + self.transitions).max(1)                 # [C, K] each
            best = torch.where(mask[:, t, None], scores + emissions[:, t], best)
            previous_tags.append(previous)
        tag = (best + self.end_transitions).argmax(1)                                        # last tag, [C]
        tags = emissions.new_zeros(chains, length, dtype=torch.long)
        for t in range(length - 1, -1, -1):
            tags[:, t] = torch.where(mask[:, t], tag, 0)
            if t:  # backwards; padding leaves the last tag of a chain as it is
                previous = previous_tags[t - 1].gather(1, tag[:, None]).squeeze(1)
                tag = torch.where(mask[:, t], previous, tag)
        return tags
