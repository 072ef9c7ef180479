"""Mixture of generating from the vocabulary and copying from the document.

P(w) = p_gen P_vocab(w) + (1 - p_gen) sum_{i: w_i = w} a_i over the vocabulary and the words of the document
(equation 9 of See et al. 2017, arXiv 1704.04368). Ids below V are vocabulary words, V + k is the k-th word of the
document that the vocabulary lacks.
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from lightning_modules.networks.output_layer import BestWords


def copied_mass(attention: Tensor, source: Tensor, targets: Tensor) -> Tensor:
    """Return the attention on the source positions that hold the target, sum_{i: w_i = y_t} a_ti.

    Args:
        attention: [..., T, S].
        source: extended ids, broadcastable to [..., S]; padding has attention zero.
        targets: extended ids, [..., T].

    Returns:
        [..., T].
    """
    return attention.masked_fill(source.unsqueeze(-2) != targets.unsqueeze(-1), 0).sum(-1)


def mix_log_probs(vocabulary: Tensor, copied: Tensor, gate: Tensor) -> Tensor:
    """Return log(p_gen P_vocab + (1 - p_gen) copied).

    It is computed in log space, so that a saturated p_gen does not give log 0.

    Args:
        vocabulary: log P_vocab of the words; -inf for words outside the vocabulary.
        copied: attention mass of the words; clamped to at least the smallest normal number.
        gate: logit of p_gen.

    Returns:
        Log-probabilities, of the broadcast shape of the arguments.
    """
    floor = torch.finfo(copied.dtype).tiny
    return torch.logaddexp(logsigmoid(gate) + vocabulary, logsigmoid(-gate) + copied.clamp_min(floor).log())


def extended_log_probs(logits: Tensor, attention: Tensor, gate: Tensor, source: Tensor, size: int) -> Tensor:
    """Return the mixture distribution over the whole extended vocabulary.

    Args:
        logits: vocabulary logits, [..., V].
        attention: [..., S].
        gate: logit of p_gen, [...].
        source: extended ids, broadcastable to [..., S].
        size: V plus the largest number of out-of-vocabulary words in a document of the batch.

    Returns:
        log P, [..., size]; -inf at words that are neither generated nor copied.
    """
    vocabulary = logits.log_softmax(-1)
    extra = size - logits.shape[-1]
    vocabulary = torch.nn.functional.pad(vocabulary, (0, extra), value=float("-inf"))            # [..., size]
    copied = torch.zeros_like(vocabulary).scatter_add(-1, source.expand(attention.shape), attention)
    absent = vocabulary.isneginf() & (copied == 0)
    return mix_log_probs(vocabulary, copied, gate.unsqueeze(-1)).masked_fill(absent, float("-inf"))


def best_candidates(
    best: BestWords,
    generated: Tensor,
    attention: Tensor,
    gate: Tensor,
    source: Tensor,
    first: Tensor,
    in_source: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return candidates that include the most probable words of the mixture, without computing it for all words.

    Words that are not in the document keep the order of their logits. The best C words of the vocabulary, together with
    all words of the document, therefore include the best C words of the mixture.

    Args:
        best: the C most probable words of the vocabulary, [B, K, C].
        generated: log P_vocab of the document's words, -inf for out-of-vocabulary words, [B, K, S].
        attention: [B, K, S].
        gate: logit of p_gen, [B, K].
        source: extended ids, [B, S].
        first: for each source position, the first position with the same word, [B, S].
        in_source: True at vocabulary words of the document, [B, V].

    Returns:
        ids and log-probabilities, [B, K, C + S]; further occurrences of a word have log-probability -inf.
    """
    beams, gate = gate.shape[1], gate.unsqueeze(-1)
    # Vocabulary words: nothing is copied. Those that the document has are scored below, as source words.
    vocabulary = mix_log_probs(best.log_probs, torch.zeros_like(best.log_probs), gate)           # [B, K, C]
    is_source_word = in_source.unsqueeze(1).expand(-1, beams, -1).gather(-1, best.ids)           # [B, K, C]
    # Source words: the attention of all positions with the same word is added up at the first one.
    mass = torch.zeros_like(attention).scatter_add_(-1, first.unsqueeze(1).expand_as(attention), attention)
    source_words = mix_log_probs(generated, mass, gate)                                          # [B, K, S]
    repeated = first != torch.arange(source.shape[1], device=source.device)                      # [B, S]
    ids = torch.cat([best.ids, source.unsqueeze(1).expand(-1, beams, -1)], -1)                   # [B, K, C + S]
    excluded = torch.cat([is_source_word | best.log_probs.isneginf(), repeated.unsqueeze(1).expand_as(mass)], -1)
    return ids, torch.cat([vocabulary, source_words], -1).masked_fill(excluded, float("-inf"))


def first_positions(source: Tensor) -> Tensor:
    """Return for each position the first position in its row with the same id: [B, S] -> [B, S]."""
    equal = source.unsqueeze(2) == source.unsqueeze(1)                                           # [B, S, S]
    return equal.to(torch.uint8).argmax(-1)
