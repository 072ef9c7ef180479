"""Network that segments texts into discourse units (EDUs): tag scores of words, and a conditional random field."""

import torch
from torch import Tensor, nn

from lightning_modules.networks.dropout import Dropout
from lightning_modules.networks.recurrent import bidirectional

OTHER, BEGIN = 0, 1


def pool_pieces(vectors: Tensor, words: Tensor, count: int) -> Tensor:
    """Average the vectors of the subwords of each of N words: [P, D] -> [N, D]; zero for a word without subwords.

    `words` has the index of the word that each of P subwords belongs to, -1 for none, [P]; `count` is N.
    """
    in_word = words >= 0
    vectors, words = vectors[in_word], words[in_word]
    sums = vectors.new_zeros(count, vectors.shape[1]).index_add(0, words, vectors)
    num_subwords = torch.bincount(words, minlength=count).clamp(min=1)               # [N]
    return sums / num_subwords.unsqueeze(1)


class SegmentationNetwork(nn.Module):
    """Bidirectional LSTM over the words of a sentence, with a linear layer for scores of the tags `OTHER` and `BEGIN`.

    A word has an encoder vector of width D = `size`, which is projected to the width `projection`, and features of its
    layout, such as whether it begins a paragraph; `layout` is their number. `hidden_size` is per direction of the LSTM.
    """

    def __init__(self, size: int, layout: int, projection: int = 160, hidden_size: int = 128, dropout: float = 0.3):
        super().__init__()
        self.project = nn.Sequential(nn.LayerNorm(size), Dropout(dropout), nn.Linear(size, projection), nn.GELU())
        self.dropout = Dropout(dropout)
        self.lstm = nn.LSTM(projection + layout, hidden_size, batch_first=True, bidirectional=True)
        self.score = nn.Linear(2 * hidden_size, 2)

    def words(self, vectors: Tensor, layout: Tensor) -> Tensor:
        """Return the LSTM input of N words from vectors [N, D] and features [N, layout], [N, projection + layout]."""
        return torch.cat([self.dropout(self.project(vectors)), layout], -1)

    def forward(self, words: Tensor, rows: Tensor, lengths: Tensor, begins: Tensor) -> Tensor:
        """Return scores of the tags `OTHER` and `BEGIN` (of an EDU) for C sentences of up to T words, [C, T, 2].

        Args:
            words: output of the method `words` for N words, [N, projection + layout].
            rows: for each sentence, the indices of its words among the N words, padded, [C, T].
            lengths: number of words of each sentence, at least 1, on the CPU, [C].
            begins: True at the first words of sentences, which must have the tag `BEGIN`, bool [N].
        """
        states = bidirectional(self.lstm, words[rows], lengths).states                       # [C, T, 2 hidden_size]
        scores = self.score(self.dropout(states))                                            # [C, T, 2]
        impossible = torch.stack([begins[rows], torch.zeros_like(rows, dtype=torch.bool)], -1)  # (OTHER, BEGIN)
        return scores.masked_fill(impossible, float("-inf"))


class LinearChainCRF(nn.Module):
    """Conditional random field over tags y of a chain x: log p(y | x) = s(x, y) - log sum_y' exp s(x, y'), where

        s(x, y) = start[y_1] + sum_t emissions[t, y_t] + sum_t transitions[y_t, y_t+1] + end[y_T]

    The parameters have the names and meanings of those in AllenNLP's `ConditionalRandomField`. An impossible tag has
    an emission of -inf; at every position at least one of the K tags must be possible.
    """

    def __init__(self, num_tags: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(num_tags, num_tags))  # [previous tag, next tag]
        self.start_transitions = nn.Parameter(torch.zeros(num_tags))
        self.end_transitions = nn.Parameter(torch.zeros(num_tags))

    def log_likelihood(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Return log p(y | x) summed over C chains, from emissions (scores of K tags) [C, T, K] and gold tags y [C, T].

        The mask is True at the positions of a chain, which precede padding, [C, T]; no chain is empty.
        """
        return (self._score(emissions, tags, mask) - self._normalizer(emissions, mask)).sum()

    def _score(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Return s(x, y) of each chain for its gold tags y (equation of the class), [C]; see `log_likelihood`."""
        scores = emissions.gather(-1, tags.unsqueeze(-1)).squeeze(-1).masked_fill(~mask, 0)  # [C, T]
        transitions = self.transitions[tags[:, :-1], tags[:, 1:]].masked_fill(~mask[:, 1:], 0)  # [C, T - 1]
        last = tags.gather(1, mask.sum(1, keepdim=True) - 1).squeeze(1)  # tag of the last position, [C]
        return self.start_transitions[tags[:, 0]] + scores.sum(1) + transitions.sum(1) + self.end_transitions[last]

    def _normalizer(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """Return log sum_y exp s(x, y) over all tag sequences y (forward algorithm): [C, T, K], mask [C, T] -> [C]."""
        alpha = self.start_transitions + emissions[:, 0]  # log sum over sequences up to t, for each last tag, [C, K]
        for t in range(1, emissions.shape[1]):
            extended = torch.logsumexp(alpha.unsqueeze(2) + self.transitions, 1) + emissions[:, t]  # [C, K]
            alpha = torch.where(mask[:, t, None], extended, alpha)  # padding leaves alpha as it is
        return torch.logsumexp(alpha + self.end_transitions, 1)                              # [C]

    @torch.no_grad()
    def decode(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """Return the most probable tags (Viterbi): emissions [C, T, K], mask [C, T] -> tags [C, T], 0 at padding."""
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
            if t:  # step back to the tag before `tag`; at padding, `tag` remains the last tag of the chain
                previous = previous_tags[t - 1].gather(1, tag[:, None]).squeeze(1)
                tag = torch.where(mask[:, t], previous, tag)
        return tags
