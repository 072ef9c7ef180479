"""Linear-chain conditional random fields over tags (Lafferty et al. 2001)."""

import torch
from torch import Tensor, nn


class LinearChainCRF(nn.Module):
    """log p(y | x) = s(x, y) - log sum_y' s(x, y') over the tags of a chain.

        s(x, y) = start[y_1] + sum_t emissions[t, y_t] + sum_t transitions[y_t, y_t+1] + end[y_T]

    The parameters have the names and the meaning that they have in AllenNLP's `ConditionalRandomField`. A tag that is
    impossible at a place has an emission of -inf there; one at least must be possible.

    Args:
        num_tags: K.
    """

    def __init__(self, num_tags: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(num_tags, num_tags))  # from, to
        self.start_transitions = nn.Parameter(torch.zeros(num_tags))
        self.end_transitions = nn.Parameter(torch.zeros(num_tags))

    def log_likelihood(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Sum of log p(y | x) over the chains, a scalar.

        Args:
            emissions: [C, T, K].
            tags: [C, T]; anything where the chain has ended.
            mask: True at the chain's places, which come first, [C, T]; every chain has one.
        """
        return (self._score(emissions, tags, mask) - self._normalizer(emissions, mask)).sum()

    def _score(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        own = emissions.gather(-1, tags.unsqueeze(-1)).squeeze(-1).masked_fill(~mask, 0)     # [C, T]
        moves = self.transitions[tags[:, :-1], tags[:, 1:]].masked_fill(~mask[:, 1:], 0)     # [C, T - 1]
        last = tags.gather(1, mask.sum(1, keepdim=True) - 1).squeeze(1)                      # [C]
        return self.start_transitions[tags[:, 0]] + own.sum(1) + moves.sum(1) + self.end_transitions[last]

    def _normalizer(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """The forward algorithm."""
        alpha = self.start_transitions + emissions[:, 0]                                     # [C, K]
        for t in range(1, emissions.shape[1]):
            on = torch.logsumexp(alpha.unsqueeze(2) + self.transitions, 1) + emissions[:, t]
            alpha = torch.where(mask[:, t, None], on, alpha)
        return torch.logsumexp(alpha + self.end_transitions, 1)                              # [C]

    @torch.no_grad()
    def decode(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """The most likely tags of all chains at once (Viterbi): [C, T, K], [C, T] -> [C, T], 0 where a chain ended."""
        chains, length, _ = emissions.shape
        best, pointers = self.start_transitions + emissions[:, 0], []                        # [C, K]
        for t in range(1, length):
            values, origin = (best.unsqueeze(2) + self.transitions).max(1)                   # over the tag before
            best = torch.where(mask[:, t, None], values + emissions[:, t], best)
            pointers.append(origin)
        tag = (best + self.end_transitions).argmax(1)                                        # [C]
        tags = emissions.new_zeros(chains, length, dtype=torch.long)
        for t in range(length - 1, -1, -1):
            tags[:, t] = torch.where(mask[:, t], tag, 0)
            if t:  # a chain that ends before t keeps its last tag until its end is reached
                before = pointers[t - 1].gather(1, tag[:, None]).squeeze(1)
                tag = torch.where(mask[:, t], before, tag)
        return tags


class AllenNLPCRF(nn.Module):
    """`ConditionalRandomField` of the optional package allennlp-light, with the methods of `LinearChainCRF`.

    Raises:
        ImportError: if the package, or the ai2-tango that it needs, is not there.
    """

    def __init__(self, num_tags: int) -> None:
        super().__init__()
        try:
            from allennlp_light.modules.conditional_random_field import ConditionalRandomField
        except ImportError as error:
            raise ImportError(
                f"the CRF of allennlp-light cannot be loaded ({error}); it needs ai2-tango 1.2.1, or take crf: precis"
            ) from error
        self.inner = ConditionalRandomField(num_tags)

    def log_likelihood(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Sum of log p(y | x) over the chains, a scalar."""
        return self.inner(_finite(emissions), tags, mask)

    def decode(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """The most likely tags, one chain after the other: [C, T, K], [C, T] -> [C, T]."""
        tags = torch.zeros(mask.shape, dtype=torch.long)
        for row, (best, _) in zip(tags, self.inner.viterbi_tags(_finite(emissions), mask)):
            row[: len(best)] = torch.as_tensor(best)
        return tags.to(emissions.device)


def _finite(emissions: Tensor) -> Tensor:
    """-inf times a mask of zeros would be no number."""
    return emissions.clamp(min=-1e4)
