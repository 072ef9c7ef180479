"""A decoder's outputs and the words of the extended vocabulary: gold words in training, continuations in decoding.

`features` is what the output layer reads, `attention` from where words are copied, `gate` the logit of the probability
to generate, None for a model that does not copy. The mixture itself stands in `copying.py`.
"""

import torch
from torch import Tensor, nn

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
    vocabulary_logits,
    wide,
)
from lightning_modules.networks.output_loss import linear_log_prob


def gold_log_probs(
    output: nn.Linear,
    features: Tensor,
    attention: Tensor,
    gate: Tensor | None,
    source: Tensor,
    target: Tensor,
    rows: Tensor,
    unknown: int,
) -> Tensor:
    """log P(y_t) of given words; the output layer is evaluated at real tokens only.

    Args:
        output: V rows.
        features: [B, K, T, H].
        attention: [B, K, T, S].
        gate: [B, K, T].
        source: extended ids, [B, S].
        target: extended ids, [B, K, T].
        rows: flat positions of the real tokens in B K T, [N].
        unknown: what a model that does not copy says for words that the vocabulary lacks.

    Returns:
        [B, K, T]; 0 at padding.
    """
    gold = target.flatten()[rows]                                                                # [N]
    known = gold < output.out_features
    log_probs = linear_log_prob(
        features.flatten(0, 2)[rows], output.weight, output.bias, gold.masked_fill(~known, unknown)
    )
    if gate is not None:
        mass = copied_mass(attention, source.unsqueeze(1), target).flatten()[rows]
        log_probs = mix_log_probs(log_probs.masked_fill(~known, float("-inf")), mass, gate.flatten()[rows])
    return log_probs.new_zeros(target.numel()).index_copy(0, rows, log_probs).view(target.shape)


def copied_words(
    output: nn.Linear, features: Tensor, attention: Tensor, gate: Tensor | None, source: Tensor, target: Tensor
) -> Tensor:
    """Whether copying gave a word more probability than the vocabulary did, [B, K, T]; arguments as above."""
    if gate is None:
        return torch.zeros_like(target, dtype=torch.bool)
    mass, V = copied_mass(attention, source.unsqueeze(1), target), output.out_features
    known = target.clamp_max(V - 1).flatten()
    generated = linear_log_prob(features.flatten(0, 2), output.weight, output.bias, known).view_as(mass).exp()
    p_gen = gate.sigmoid()
    return (1 - p_gen) * mass > (p_gen * generated).masked_fill(target >= V, 0)


def sampling_memory(extended: Tensor, vocab_size: int) -> dict[str, Tensor]:
    """What `every_word` needs to know of the documents' words: extended ids [B, S], and how many they add, [B]."""
    return {"source": extended, "extra": (extended.amax(1) - vocab_size + 1).clamp_min(0)}


def search_memory(output: nn.Linear, source: Tensor, extended: Tensor, unknown: int) -> dict[str, Tensor]:
    """What `likeliest_words` and `every_word` need to know of the documents' words, each tensor [B, ...].

    Args:
        source: ids below V, [B, S].
        extended: extended ids, [B, S].
        unknown: the id that `source` has where the vocabulary lacks a word.
    """
    V = output.out_features
    in_source = torch.zeros(len(source), V, dtype=torch.bool, device=source.device)
    in_source.scatter_(1, source, True)
    # a word that the vocabulary lacks is read as unknown; that symbol itself is no word of the document
    in_source[:, unknown] = (extended == unknown).any(1)
    return sampling_memory(extended, V) | {
        "first": first_positions(extended),
        "in_source": in_source,
        "rows": output.weight[source],  # of the output layer, for the document's words: [B, S, H]
        "row_bias": output.bias[source].masked_fill(extended >= V, float("-inf")),
    }


def likeliest_words(
    features: Tensor,
    attention: Tensor,
    gate: Tensor | None,
    memory: dict[str, Tensor],
    layer: VocabularySlices,
    count: int,
) -> tuple[Tensor, Tensor]:
    """Candidates among which the likeliest `count` words of the mixture are: ids and log-probabilities, [B, K, C].

    Args:
        features: [B, K, H].
        attention: [B, K, S].
        gate: [B, K].
        memory: with what `search_memory` gives.
        layer: the output layer.
    """
    best = best_words(features, layer, count)
    if gate is None:
        return best.ids, best.log_probs
    logits = torch.baddbmm(memory["row_bias"].unsqueeze(1), features, memory["rows"].transpose(1, 2))
    known = (memory["source"], memory["first"], memory["in_source"])
    return best_candidates(best, wide(logits) - best.normalizer, attention, gate, *known)


def every_word(
    output: nn.Linear, words: int, features: Tensor, attention: Tensor, gate: Tensor | None, memory: dict[str, Tensor]
) -> Tensor:
    """log P of every word, [B, K, V], of a model that copies [B, K, V + OOV].

    Arguments as above; rows of the output layer behind the first `words` have no word.
    """
    logits = vocabulary_logits(features, output.weight, output.bias)                             # [B, K, V]
    logits[..., words:] = float("-inf")
    if gate is None:
        return logits.log_softmax(-1)
    size = output.out_features + int(memory["extra"].max())
    return extended_log_probs(logits, attention, gate, memory["source"].unsqueeze(1), size)
