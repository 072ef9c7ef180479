"""Log-probabilities over the extended vocabulary: of targets in training, of continuations in decoding.

The mixture of generation and copying itself is in `copying.py`.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, softplus

from lightning_modules.networks.copying import (
    best_candidates,
    copied_mass,
    extended_log_probs,
    first_positions,
    mix_log_probs,
)
from lightning_modules.networks.output_layer import (
    VocabularySlices,
    best_words,
    upcast_half,
    vocabulary_logits,
)
from lightning_modules.networks.output_loss import linear_log_prob


class CopyOutputs(NamedTuple):
    """Decoder outputs that define the distribution over the extended vocabulary.

    Functions below also take any other object with these fields. The leading dimensions are [B, K] for one step of K
    hypotheses of each document, and [B, K, T] for whole targets.
    """

    features: Tensor  # input of the output layer, [..., H]
    attention: Tensor  # distribution over the source positions to copy from, [..., S]
    gate: Tensor | None  # logit of the probability to generate, [...]; None for a model that does not copy


def target_log_probs(
    output: nn.Linear, outputs: CopyOutputs, source: Tensor, target: Tensor, rows: Tensor, unknown: int
) -> Tensor:
    """Return log P(y_t) of target words; the output layer is evaluated at real tokens only.

    Args:
        output: output layer, V rows.
        outputs: outputs of the decoder, each [B, K, T, ...].
        source: extended ids of the documents, [B, S].
        target: extended ids, [B, K, T].
        rows: flat positions of the real tokens in [B K T], [N].
        unknown: id that a model without copying generates for out-of-vocabulary words.

    Returns:
        [B, K, T]; 0 at padding.
    """
    tokens = target.flatten()[rows]                                                              # [N]
    in_vocabulary = tokens < output.out_features
    vocabulary_ids = tokens.masked_fill(~in_vocabulary, unknown)
    features = outputs.features.flatten(0, 2)[rows]                                              # [N, H]
    log_probs = linear_log_prob(features, output.weight, output.bias, vocabulary_ids)            # [N]
    if outputs.gate is not None:
        mass = copied_mass(outputs.attention, source.unsqueeze(1), target).flatten()[rows]       # [N]
        generated = log_probs.masked_fill(~in_vocabulary, float("-inf"))
        log_probs = mix_log_probs(generated, mass, outputs.gate.flatten()[rows])
    return log_probs.new_zeros(target.numel()).index_copy(0, rows, log_probs).view(target.shape)


def permitted_log_probs(
    output: nn.Linear,
    words: int,
    outputs: CopyOutputs,
    source: Tensor,
    target: Tensor,
    rows: Tensor,
    forbidden: tuple[int, ...],
) -> Tensor:
    """Return log P(y_t) renormalised over the words that are not forbidden, without building that distribution.

    P(y) / sum_{w permitted} P(w), where the sum is p_gen times the permitted words' share of P_vocab plus 1 - p_gen
    times the attention on permitted words. Rescoring takes half as long as over the distributions of all words
    (V = 50,000, one CPU core), which saves a quarter of a self-critical step.

    Args:
        words: number of rows of the output layer that have a word; the others have no probability.
        rows: flat positions in [B K T] at which the same tokens are forbidden, [N].
        forbidden: ids below `words`.

    The other arguments are those of `target_log_probs`.

    Returns:
        [B, K, T]; 0 outside `rows`.
    """
    all_rows = words == output.out_features
    weight, bias = (output.weight, output.bias) if all_rows else (output.weight[:words], output.bias[:words])
    features, targets = outputs.features.flatten(0, 2)[rows], target.flatten()[rows]             # [N, H], [N]
    banned = torch.tensor(forbidden, device=targets.device)
    in_vocabulary = targets < output.out_features
    anchor = targets.masked_fill(~in_vocabulary, words - 1)  # any permitted word serves where the target is an OOV
    log_probs = linear_log_prob(features, weight, bias.index_fill(0, banned, float("-inf")), anchor)
    if outputs.gate is not None:
        # a word's logit less its log-probability is the log-sum-exp of all permitted words
        permitted = upcast_half((features * weight[anchor]).sum(-1) + bias[anchor]) - log_probs
        excluded = upcast_half(linear(features, weight[banned], bias[banned])).logsumexp(-1)
        share = -softplus(excluded - permitted)  # log of the permitted words' part of P_vocab
        generated = (log_probs + share).masked_fill(~in_vocabulary, float("-inf"))
        mass = copied_mass(outputs.attention, source.unsqueeze(1), target).flatten()[rows]
        readable = ~torch.isin(source, banned)[:, None, None]                                    # [B, 1, 1, S]
        total = outputs.attention.masked_fill(~readable, 0).sum(-1).flatten()[rows]
        gate = outputs.gate.flatten()[rows]
        log_probs = mix_log_probs(generated, mass, gate) - mix_log_probs(share, total, gate)
    log_probs = log_probs.masked_fill(torch.isin(targets, banned), float("-inf"))
    return log_probs.new_zeros(target.numel()).index_copy(0, rows, log_probs).view(target.shape)


def copied_words(output: nn.Linear, outputs: CopyOutputs, source: Tensor, target: Tensor) -> Tensor:
    """Return whether copying contributes more to a word's probability than generation does, [B, K, T].

    Arguments as in `target_log_probs`.
    """
    if outputs.gate is None:
        return torch.zeros_like(target, dtype=torch.bool)
    V = output.out_features
    mass = copied_mass(outputs.attention, source.unsqueeze(1), target)                           # [B, K, T]
    vocabulary_ids = target.clamp_max(V - 1).flatten()
    log_probs = linear_log_prob(outputs.features.flatten(0, 2), output.weight, output.bias, vocabulary_ids)
    p_gen = outputs.gate.sigmoid()
    generated = (p_gen * log_probs.view_as(mass).exp()).masked_fill(target >= V, 0)
    return (1 - p_gen) * mass > generated


def sampling_memory(extended: Tensor, vocab_size: int) -> dict[str, Tensor]:
    """Return what `all_log_probs` reads of the documents: extended ids [B, S] and numbers of OOV words [B]."""
    return {"source": extended, "oov_counts": (extended.amax(1) - vocab_size + 1).clamp_min(0)}


def search_memory(output: nn.Linear, source: Tensor, extended: Tensor, unknown: int) -> dict[str, Tensor]:
    """Return what `candidate_log_probs` and `all_log_probs` read of the documents, each tensor [B, ...].

    Args:
        output: output layer, V rows.
        source: ids below V, [B, S].
        extended: extended ids, [B, S].
        unknown: id in `source` of out-of-vocabulary words.
    """
    V = output.out_features
    in_source = torch.zeros(len(source), V, dtype=torch.bool, device=source.device)              # [B, V]
    in_source.scatter_(1, source, True)
    # `source` has UNK for OOV words, so UNK counts as a word of the document only if `extended` has it too.
    in_source[:, unknown] = (extended == unknown).any(1)
    return sampling_memory(extended, V) | {
        "first": first_positions(extended),
        "in_source": in_source,
        "source_weight": output.weight[source],  # rows of the output layer for the source words, [B, S, H]
        "source_bias": output.bias[source].masked_fill(extended >= V, float("-inf")),
    }


def candidate_log_probs(
    outputs: CopyOutputs, memory: dict[str, Tensor], layer: VocabularySlices, count: int
) -> tuple[Tensor, Tensor]:
    """Return candidates that include the `count` most probable words of the mixture.

    Args:
        outputs: outputs of one decoder step, each [B, K, ...].
        memory: see `search_memory`.
        layer: the output layer.
        count: number of words.

    Returns:
        ids and log-probabilities, [B, K, C] each.
    """
    best = best_words(outputs.features, layer, count)
    if outputs.gate is None:
        return best.ids, best.log_probs
    weight, bias = memory["source_weight"].transpose(1, 2), memory["source_bias"].unsqueeze(1)
    logits = torch.baddbmm(bias, outputs.features, weight)                                       # [B, K, S]
    return best_candidates(
        best=best,
        generated=upcast_half(logits) - best.normalizer,
        attention=outputs.attention,
        gate=outputs.gate,
        source=memory["source"],
        first=memory["first"],
        in_source=memory["in_source"],
    )


def all_log_probs(output: nn.Linear, words: int, outputs: CopyOutputs, memory: dict[str, Tensor]) -> Tensor:
    """Return log P of every word, [B, K, V + OOV], or [B, K, V] for a model that does not copy.

    Args:
        output: output layer, V rows.
        words: number of rows that have a word; the rows after them get -inf.
        outputs: outputs of one decoder step, each [B, K, ...].
        memory: see `sampling_memory`.
    """
    logits = vocabulary_logits(outputs.features, output.weight, output.bias)                     # [B, K, V]
    logits[..., words:] = float("-inf")
    if outputs.gate is None:
        return logits.log_softmax(-1)
    size = output.out_features + int(memory["oov_counts"].max())
    return extended_log_probs(logits, outputs.attention, outputs.gate, memory["source"].unsqueeze(1), size)
