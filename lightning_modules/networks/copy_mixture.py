"""Distribution of the next token of a model that generates and copies: for beam search and for sampling."""

from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from lightning_modules.networks.copying import CopyOutputs, copied_mass, mix_log_probs
from lightning_modules.networks.output_layer import largest, logits_and_normalizer


class PermittedMixture(NamedTuple):
    """Distribution of the next token over the extended vocabulary, renormalized over permitted tokens.

    P(w) is proportional to p_gen P_vocab(w) + (1 - p_gen) sum_{i: w_i = w} a_i at permitted tokens. The distribution
    over all tokens is not built. A beam search compares the best words of the vocabulary with the words of the
    document alone, in a third of the time (V = 50,000, one thread). Drawing a token takes three draws of one number:
    whether the token is generated, with the probability of the permitted words' part, then the word or the source
    position. It takes a third of the time of drawing from all tokens.
    """

    logits: Tensor  # -inf at forbidden words, [B, K, words]
    total: Tensor  # log-sum-exp of the permitted words, the lowest number if there is none, [B, K]
    share: Tensor  # log of the part of P_vocab on permitted words, [B, K]
    copied: Tensor  # attention, 0 at forbidden words, [B, K, S]
    gate: Tensor | None  # logit of p_gen, [B, K]; None for a model that does not copy
    source: Tensor  # extended ids, [B, S]

    @classmethod
    def of(
        cls, output: nn.Linear, words: int, outputs: CopyOutputs, source: Tensor, forbidden: Tensor | None = None
    ) -> Self:
        """Compute the distribution of one decoder step.

        Args:
            output: the output layer, V rows.
            words: number of rows of it that have a word; the others have no probability.
            outputs: outputs of the step, each [B, K, ...].
            source: extended ids of the documents, [B, S].
            forbidden: ids that are not permitted, negative ones are ignored, [B, K, F]; None if all are.
        """
        logits, total = logits_and_normalizer(outputs.features, output.weight[:words], output.bias[:words])
        share, copied = torch.zeros_like(total), outputs.attention
        if forbidden is not None:
            is_word = (forbidden >= 0) & (forbidden < words)
            # without an index of the forbidden words alone, whose number the host would wait for
            lowered = torch.zeros_like(forbidden, dtype=logits.dtype).masked_fill(is_word, float("-inf"))
            logits.scatter_add_(-1, forbidden.masked_fill(~is_word, 0), lowered)
            permitted = logits.logsumexp(-1).clamp_min(torch.finfo(logits.dtype).min)            # [B, K]
            total, share = permitted, (permitted - total).clamp_max(0)
            readable = (source[:, None, :, None] != forbidden.unsqueeze(2)).all(-1)              # [B, K, S]
            copied = copied.masked_fill(~readable, 0)
        return cls(logits, total, share, copied, outputs.gate, source)

    def candidates(self, count: int, first: Tensor) -> tuple[Tensor, Tensor]:
        """Return ids and log-probabilities [B, K, C + S] that include the `count` = C most probable tokens.

        Words that are not in the document keep the order of their logits. The best C words of the vocabulary, together
        with all words of the document, therefore include the best C tokens. `first` is `first_positions` of the source,
        [B, S]; further occurrences of a word have log-probability -inf.
        """
        count = min(count, self.logits.shape[-1])
        words, logits = largest(self.logits, count)                                              # [B, K, C]
        if self.gate is None:
            return words, logits - self.total.unsqueeze(-1)
        source = self.source.unsqueeze(1).expand(-1, logits.shape[1], -1)                        # [B, K, S]
        ids = torch.cat([words, source], -1)
        in_vocabulary = source < self.logits.shape[-1]
        of_source = self.logits.gather(-1, source.masked_fill(~in_vocabulary, 0))
        generated = torch.cat([logits, of_source.masked_fill(~in_vocabulary, float("-inf"))], -1)
        generated = generated + (self.share - self.total).unsqueeze(-1)
        # the attention of all positions with the same word is added up at the first one
        first = first.unsqueeze(1).expand_as(source)
        mass = self.copied.new_zeros(ids.shape).scatter_add_(-1, count + first, self.copied)     # [B, K, C + S]
        repeated = first != torch.arange(source.shape[-1], device=source.device)
        # words that are not in the document are not copied
        is_source_word = (words.unsqueeze(-1) == source.unsqueeze(2)).any(-1)
        absent = torch.cat([is_source_word | logits.isneginf(), repeated], -1)
        return ids, mix_log_probs(generated, mass, self.gate.unsqueeze(-1)).masked_fill(absent, float("-inf"))

    def most_probable(self, first: Tensor) -> Tensor:
        """Return the most probable token of each sample, [B, K]; `first` as in `candidates`."""
        ids, log_probs = self.candidates(1, first)
        return ids.gather(-1, log_probs.argmax(-1, keepdim=True)).squeeze(-1)

    def draw(self) -> Tensor:
        """Return a token of each of K samples of each document, [B, K]."""
        shape = self.share.shape
        word = inverse_cdf(self.logits.softmax(-1).flatten(0, 1)).view(shape)
        if self.gate is None:
            return word
        position = inverse_cdf(self.copied.flatten(0, 1)).view(shape)
        generate = (logsigmoid(self.gate) + self.share - self._normalizer()).exp()               # [B, K]
        uniform = torch.rand(shape, device=generate.device, dtype=torch.double)
        return torch.where(uniform < generate, word, self.source.gather(1, position))

    def log_probs(self, tokens: Tensor) -> Tensor:
        """Return log P of tokens, [B, K, n] -> [B, K, n]; -inf at forbidden ones."""
        in_vocabulary = tokens < self.logits.shape[-1]
        logits = self.logits.gather(-1, tokens.masked_fill(~in_vocabulary, 0))
        generated = logits.masked_fill(~in_vocabulary, float("-inf")) - self.total.unsqueeze(-1)
        if self.gate is None:
            return generated
        mass = copied_mass(self.copied.unsqueeze(2), self.source.unsqueeze(1), tokens)
        mixed = mix_log_probs(generated + self.share.unsqueeze(-1), mass, self.gate.unsqueeze(-1))
        mixed = mixed - self._normalizer().unsqueeze(-1)
        return mixed.masked_fill(generated.isneginf() & (mass == 0), float("-inf"))

    def _normalizer(self) -> Tensor:
        """Return the log-probability of all permitted tokens together, [B, K]."""
        return torch.logaddexp(logsigmoid(self.gate) + self.share, logsigmoid(-self.gate) + self.copied.sum(-1).log())


def inverse_cdf(weights: Tensor) -> Tensor:
    """Draw a column of each row with probability proportional to its weight, up to 1e-7: [N, C] -> [N].

    A column with weight 0 is only drawn from a row without any other. One random number is drawn for each row.
    """
    sums = weights.cumsum(-1)                                                                    # [N, C]
    uniform = torch.rand(len(sums), 1, device=sums.device, dtype=sums.dtype)
    # below the last sum, which rounding could reach
    target = torch.minimum(uniform * sums[:, -1:], sums[:, -1:].nextafter(torch.zeros_like(uniform)))
    return torch.searchsorted(sums, target, right=True).squeeze(1).clamp_max(sums.shape[1] - 1)
