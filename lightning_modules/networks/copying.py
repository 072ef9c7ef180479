"""The output layer of a copying generator: what the loss needs, what beam search needs, and the whole distribution.

P(w) = p_gen P_vocab(w) + (1 - p_gen) sum_{i: w_i = w} a_i over the vocabulary and the document's own words
(equation 9 of See et al. 2017, arXiv 1704.04368). Ids below V are vocabulary words, V + k is the k-th word of the
document that the vocabulary lacks.
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from lightning_modules.networks.output_layer import BestWords


def copied_mass(attention: Tensor, source: Tensor, targets: Tensor) -> Tensor:
    """Attention on the source positions that hold the target, sum_{i: w_i = y_t} a_ti.

    Args:
        attention: [..., T, S].
        source: extended ids, broadcastable to [..., S]; padding is masked by its attention of zero.
        targets: extended ids, [..., T].

    Returns:
        [..., T].
    """
    return attention.masked_fill(source.unsqueeze(-2) != targets.unsqueeze(-1), 0).sum(-1)


def mix_log_probs(vocabulary: Tensor, copied: Tensor, gate: Tensor) -> Tensor:
    """log(p_gen P_vocab + (1 - p_gen) copied), in log space so that no saturated p_gen gives log 0.

    Args:
        vocabulary: log P_vocab of the words; -inf for words outside the vocabulary.
        copied: their attention mass; a mass of 0 is taken as the smallest normal number.
        gate: the logit of p_gen.

    Returns:
        Log-probabilities, of the arguments' common shape.
    """
    floor = torch.finfo(copied.dtype).tiny
    return torch.logaddexp(logsigmoid(gate) + vocabulary, logsigmoid(-gate) + copied.clamp_min(floor).log())


def extended_log_probs(logits: Tensor, attention: Tensor, gate: Tensor, source: Tensor, size: int) -> Tensor:
    """The whole mixture distribution: for sampling, and what the shortcuts are tested against.

    Args:
        logits: vocabulary logits, [..., V].
        attention: [..., S].
        gate: logit of p_gen, [...].
        source: extended ids, broadcastable to [..., S].
        size: V plus the largest number of out-of-vocabulary words in a document of the batch.

    Returns:
        log P, [..., size]; -inf where nothing generates or copies a word.
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
    """The likeliest words of the mixture, exactly, without building it over the vocabulary.

    Words that the document lacks keep the order of their logits, so the likeliest C of the vocabulary together with all
    words of the document contain the likeliest C of the mixture.

    Args:
        best: the likeliest C words of the vocabulary, [B, K, C].
        generated: log P_vocab of the document's words, -inf for those that the vocabulary lacks, [B, K, S].
        attention: [B, K, S].
        gate: logit of p_gen, [B, K].
        source: extended ids, [B, S].
        first: for every source position the first position that holds the same word, [B, S]; padding points at itself.
        in_source: True at vocabulary words that the document has, [B, V].

    Returns:
        ids and log-probabilities, [B, K, C + S]; a word that stands there twice has -inf the second time.
    """
    beams, gate = gate.shape[1], gate.unsqueeze(-1)
    top = mix_log_probs(best.log_probs, torch.zeros_like(best.log_probs), gate)                  # [B, K, C]
    known = in_source.unsqueeze(1).expand(-1, beams, -1).gather(-1, best.ids)  # scored below, as source words
    mass = torch.zeros_like(attention).scatter_add_(-1, first.unsqueeze(1).expand_as(attention), attention)
    copied = mix_log_probs(generated, mass, gate)                                                # [B, K, S]
    repeated = first != torch.arange(source.shape[1], device=source.device)                      # [B, S]
    ids = torch.cat([best.ids, source.unsqueeze(1).expand(-1, beams, -1)], -1)                   # [B, K, C + S]
    never = torch.cat([known | best.log_probs.isneginf(), repeated.unsqueeze(1).expand_as(copied)], -1)
    return ids, torch.cat([top, copied], -1).masked_fill(never, float("-inf"))


def first_positions(source: Tensor) -> Tensor:
    """For every position of a row the first position with the same id: [B, S] -> [B, S]."""
    same = source.unsqueeze(2) == source.unsqueeze(1)                                            # [B, S, S]
    return same.to(torch.uint8).argmax(-1)
