"""Mixture of generating from the vocabulary and copying from the document.

P(w) = p_gen P_vocab(w) + (1 - p_gen) sum_{i: w_i = w} a_i over the vocabulary and the words of the document
(equation 9 of See et al. 2017, arXiv 1704.04368). Ids below V are vocabulary words, V + k is the k-th word of the
document that the vocabulary lacks. `PermittedMixture` is the distribution of one decoder step.
"""

from functools import partial
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, logsigmoid, pad, softplus

from lightning_modules.networks import output_layer
from lightning_modules.networks.output_layer import DecodingLayer, largest, smoothed_log_probs, upcast_half


class CopyOutputs(NamedTuple):
    """Decoder outputs that define the distribution over the extended vocabulary.

    Functions below also take any other object with these fields. The leading dimensions are [B, K] for one step of K
    hypotheses of each document, and [B, K, T] for whole targets.
    """

    features: Tensor  # input of the output layer, [..., H]
    attention: Tensor  # distribution over the source positions to copy from, [..., S]
    gate: Tensor | None = None  # logit of the probability to generate, [...]; None for a model that does not copy


def copied_mass(attention: Tensor, source: Tensor, targets: Tensor) -> Tensor:
    """Return the total attention on the source positions that hold the target word, sum_{i: w_i = y_t} a_ti.

    Attention [..., T, S], which is 0 at padding; extended ids `source`, broadcastable to [..., S], and `targets`
    [..., T] -> [..., T].
    """
    return attention.masked_fill(source.unsqueeze(-2) != targets.unsqueeze(-1), 0).sum(-1)


def mix_log_probs(vocabulary: Tensor, copied: Tensor, gate: Tensor) -> Tensor:
    """Return log(p_gen P_vocab + (1 - p_gen) copied), of the broadcast shape of the arguments.

    It is computed in log space, so that a saturated p_gen does not give log 0. `vocabulary` is log P_vocab of the
    words, -inf outside the vocabulary, `gate` the logit of p_gen, and `copied` the attention on the words, which is
    clamped to at least the smallest normal number: log 0 has no gradient.
    """
    floor = torch.finfo(copied.dtype).tiny
    return torch.logaddexp(logsigmoid(gate) + vocabulary, logsigmoid(-gate) + copied.clamp_min(floor).log())


def target_log_probs(
    output: nn.Linear,
    outputs: CopyOutputs,
    source: Tensor,
    target: Tensor,
    rows: Tensor,
    unknown: int,
    words: int | None = None,
    forbidden: tuple[int, ...] = (),
    precomputed: tuple[Tensor, ...] = (),
) -> Tensor:
    """Return log P(y_t) of target words, renormalized over the words that are not forbidden, [B, K, T].

    P(y) / sum_{w permitted} P(w), where the sum is p_gen times the permitted words' share of P_vocab plus 1 - p_gen
    times the attention on permitted words. The distribution over all words is not built, and the output layer is
    evaluated at real tokens only: rescoring takes half as long as over the distributions of all words (V = 50,000, one
    CPU core), which saves a quarter of a self-critical step. The result is 0 outside `rows`, -inf for forbidden words.

    Args:
        output, outputs: output layer, V rows; outputs of the decoder, each [B, K, T, ...].
        source, target: extended ids of the documents, [B, S], and of the targets, [B, K, T].
        rows: flat positions in [B K T] of the N tokens to score, [N].
        unknown: id that a model without copying generates for out-of-vocabulary words.
        words: number of words; the output layer may have more rows, which get no probability; None if it has not.
        forbidden: ids that get no probability at any of `rows`; the last word must not be one of them.
        precomputed: log-sum-exp and softmax over permitted words at `rows`, see `KnownLogProbs`; empty if none.
    """
    weight, bias = output.weight, output.bias
    if words and words < len(weight):  # the gradient of a slice costs a copy
        weight, bias = weight[:words], bias[:words]
    sparse_rows = partial(embedding, weight=weight, sparse=True)  # rows of weights, with a gradient of their size
    # without forbidden words, as in training, no tensor is transferred from the CPU
    banned = torch.tensor(forbidden, device=target.device) if forbidden else target.new_empty(0, dtype=torch.long)
    features = outputs.features.flatten(0, 2)[rows]                                              # [N, H]
    tokens = target.flatten()[rows]                                                              # [N]
    in_vocabulary = tokens < output.out_features
    # a target outside the vocabulary can only be copied; the last word, which is permitted, stands in for it here
    anchor = tokens.masked_fill(~in_vocabulary, unknown if outputs.gate is None else len(bias) - 1)
    permitted_bias = bias.index_fill(0, banned, float("-inf"))
    if precomputed:
        log_probs = output_layer.KnownLogProbs.apply(features, weight, permitted_bias, anchor, *precomputed)
    else:
        log_probs, _ = smoothed_log_probs(features, weight, permitted_bias, anchor)              # [N]
    if outputs.gate is not None:
        gate = outputs.gate.flatten()[rows]
        mass = copied_mass(outputs.attention, source.unsqueeze(1), target).flatten()[rows]       # [N]
        share = normalizer = 0.0  # logs of 1: all words are permitted
        if forbidden:
            # log-sum-exp of the logits of all permitted words: the logit of any of them less its log-probability
            permitted = upcast_half((features * sparse_rows(anchor)).sum(-1) + bias[anchor]) - log_probs
            excluded = upcast_half(linear(features, sparse_rows(banned), bias[banned])).logsumexp(-1)
            # log of the permitted words' share of P_vocab, e^permitted / (e^permitted + e^excluded)
            share = -softplus(excluded - permitted)
            readable = ~torch.isin(source, banned)[:, None, None]                                # [B, 1, 1, S]
            copied = outputs.attention.masked_fill(~readable, 0).sum(-1).flatten()[rows]
            normalizer = mix_log_probs(share, copied, gate)
        generated = (log_probs + share).masked_fill(~in_vocabulary, float("-inf"))
        log_probs = mix_log_probs(generated, mass, gate) - normalizer
    log_probs = log_probs.masked_fill(torch.isin(tokens, banned), float("-inf"))
    return log_probs.new_zeros(target.numel()).index_copy(0, rows, log_probs).view(target.shape)


def copied_words(output: nn.Linear, outputs: CopyOutputs, source: Tensor, target: Tensor) -> Tensor:
    """Return whether copying contributes more to P(y_t) than generation, [B, K, T]; arguments of `target_log_probs`."""
    if outputs.gate is None:
        return torch.zeros_like(target, dtype=torch.bool)
    V = output.out_features
    mass = copied_mass(outputs.attention, source.unsqueeze(1), target)                           # [B, K, T]
    vocabulary_ids = target.clamp_max(V - 1).flatten()  # any valid id for OOV words, which are masked below
    log_probs, _ = smoothed_log_probs(outputs.features.flatten(0, 2), output.weight, output.bias, vocabulary_ids)
    p_gen = outputs.gate.sigmoid()
    generated = (p_gen * log_probs.view_as(mass).exp()).masked_fill(target >= V, 0)
    return (1 - p_gen) * mass > generated  # arbitrary at padding


def all_log_probs(output: nn.Linear, words: int, outputs: CopyOutputs, source: Tensor, size: int) -> Tensor:
    """Return log P of every word, [..., size], or [..., V] without copying.

    `size` is V plus the maximum number of out-of-vocabulary words in a document of the batch. Rows of the output layer
    beyond the tokenizer's `words` have no probability. `source` are extended ids, broadcastable to [..., S].
    """
    logits = output_layer.vocabulary_logits(outputs.features, output.weight, output.bias)        # [..., V]
    logits[..., words:] = float("-inf")
    vocabulary = logits.log_softmax(-1)  # log P_vocab
    if outputs.gate is None:
        return vocabulary
    vocabulary = pad(vocabulary, (0, size - vocabulary.shape[-1]), value=float("-inf"))          # [..., size]
    source = source.expand(outputs.attention.shape)  # [..., S]
    copied = torch.zeros_like(vocabulary).scatter_add(-1, source, outputs.attention)
    absent = vocabulary.isneginf() & (copied == 0)  # P = 0: words of other documents; `mix_log_probs` clamps log 0
    return mix_log_probs(vocabulary, copied, outputs.gate.unsqueeze(-1)).masked_fill(absent, float("-inf"))


def first_positions(source: Tensor) -> Tensor:
    """Return for each position the first position of the same document with the same id: [B, S] -> [B, S]."""
    equal = source.unsqueeze(2) == source.unsqueeze(1)                                           # [B, S, S]
    return equal.to(torch.uint8).argmax(-1)  # the first of equal maxima; argmax is not defined for booleans


class PermittedMixture(NamedTuple):
    """Distribution of the next token over the extended vocabulary, renormalized over permitted tokens.

    P(w) is proportional to p_gen P_vocab(w) + (1 - p_gen) sum_{i: w_i = w} a_i at permitted tokens. `gate` is the logit
    of p_gen, `copied` the attention a, `total` the log-sum-exp of the logits of permitted words, `share` the log of
    their part of P_vocab. The distribution over all tokens is not built, which saves two thirds of the time (V =
    50,000, one thread). A beam search compares only the best words of the vocabulary with the words of the document.
    Drawing a token takes three random numbers: for a word, for a source position, and for the choice between these two.
    """

    logits: Tensor  # -inf at forbidden words, [B, K, words]
    probabilities: Tensor | None  # softmax of the logits, NaN if no word is permitted; None if nothing is forbidden
    total: Tensor  # log-sum-exp of the permitted words, the lowest number if there is none, [B, K]
    share: Tensor  # log of the part of P_vocab on permitted words, [B, K]
    copied: Tensor  # attention, 0 at forbidden words, [B, K, S]
    gate: Tensor | None  # logit of p_gen, [B, K]; None for a model that does not copy
    source: Tensor  # extended ids, [B, S]

    @classmethod
    def of(cls, layer: DecodingLayer, outputs: CopyOutputs, source: Tensor, forbidden: Tensor | None = None) -> Self:
        """Compute the distribution of one decoder step, for K hypotheses: outputs [B, K, ...], extended ids [B, S].

        The layer has a row for each word. Up to F ids are forbidden, [B, K, F]; negative ids, and None, forbid nothing.
        """
        logits = layer.logits(outputs.features)                                                  # [B, K, words]
        if forbidden is None:
            total = logits.logsumexp(-1)
            return cls(logits, None, total, torch.zeros_like(total), outputs.attention, outputs.gate, source)
        forbidden = forbidden.sort(-1).values                                                    # [B, K, F]
        repeated = pad(forbidden[..., 1:] == forbidden[..., :-1], (1, 0))  # so that `excluded` counts each id once
        is_word = (forbidden >= 0) & (forbidden < len(layer.weight))  # neither padding nor an OOV word
        columns = forbidden.masked_fill(~is_word, 0)
        # log-sum-exp over forbidden words
        excluded = logits.gather(-1, columns).masked_fill(~is_word | repeated, float("-inf")).logsumexp(-1)  # [B, K]
        # -inf at forbidden words; other ids add 0 to word 0, since to leave them out by a mask would wait for the GPU
        addends = torch.zeros_like(columns, dtype=logits.dtype).masked_fill(is_word, float("-inf"))
        logits.scatter_add_(-1, columns, addends)
        probabilities = logits.softmax(-1)
        # log-sum-exp of permitted words (NaN if none): a logit less its log P, which saves a pass of exponentials
        permitted = (logits.amax(-1) - probabilities.amax(-1).log()).nan_to_num(torch.finfo(logits.dtype).min)  # [B, K]
        readable = (source[:, None, :, None] != forbidden.unsqueeze(2)).all(-1)  # permitted source positions, [B, K, S]
        copied = outputs.attention.masked_fill(~readable, 0)
        share = -softplus(excluded - permitted)  # log of e^permitted / (e^permitted + e^excluded), [B, K]
        return cls(logits, probabilities, permitted, share, copied, outputs.gate, source)

    def candidates(self, count: int, first: Tensor) -> tuple[Tensor, Tensor]:
        """Return ids and log-probabilities [B, K, C + S] that include the `count` = C most probable tokens.

        Words that are not in the document keep the order of their logits. The best C words of the vocabulary, together
        with all words of the document, therefore include the best C tokens. A word that occurs several times among the
        candidates has log-probability -inf at all but its first source position. `first` is `first_positions` of the
        source, [B, S]. Without copying there are C candidates.
        """
        count = min(count, self.logits.shape[-1])
        words, logits = largest(self.logits, count)                                              # [B, K, C]
        if self.gate is None:
            return words, logits - self.total.unsqueeze(-1)
        source = self.source.unsqueeze(1).expand(-1, logits.shape[1], -1)                        # [B, K, S]
        ids = torch.cat([words, source], -1)                                                     # [B, K, C + S]
        in_vocabulary = source < self.logits.shape[-1]
        source_logits = self.logits.gather(-1, source.masked_fill(~in_vocabulary, 0))
        generated = torch.cat([logits, source_logits.masked_fill(~in_vocabulary, float("-inf"))], -1)
        generated = generated + (self.share - self.total).unsqueeze(-1)  # less log-sum-exp of all words: log P_vocab
        # attention, a probability: positions with the same word add up at the first one, in column C + position
        first = first.unsqueeze(1).expand_as(source)
        mass = self.copied.new_zeros(ids.shape).scatter_add_(-1, count + first, self.copied)     # [B, K, C + S]
        repeated = first != torch.arange(source.shape[-1], device=source.device)
        # the best words of the vocabulary count at their first source position if the document has them
        is_source_word = (words.unsqueeze(-1) == source.unsqueeze(2)).any(-1)                    # [B, K, C]
        excluded = torch.cat([is_source_word | logits.isneginf(), repeated], -1)
        return ids, mix_log_probs(generated, mass, self.gate.unsqueeze(-1)).masked_fill(excluded, float("-inf"))

    def most_probable(self, first: Tensor) -> Tensor:
        """Return the most probable token of each sample, [B, K]; `first` as in `candidates`."""
        ids, log_probs = self.candidates(1, first)
        return ids.gather(-1, log_probs.argmax(-1, keepdim=True)).squeeze(-1)

    def draw(self) -> Tensor:
        """Draw a token for each of K samples of each document, [B, K]; only if `of` was passed `forbidden`."""
        shape = self.share.shape  # [B, K]
        word = inverse_cdf(self.probabilities.flatten(0, 1)).view(shape)
        if self.gate is None:
            return word
        position = inverse_cdf(self.copied.flatten(0, 1)).view(shape)
        generate = (logsigmoid(self.gate) + self.share - self._normalizer()).exp()  # P of vocabulary, [B, K]
        uniform = torch.rand(shape, device=generate.device, dtype=torch.double)  # float32: 0, below any P, once in 2^24
        return torch.where(uniform < generate, word, self.source.gather(1, position))

    def log_probs(self, tokens: Tensor) -> Tensor:
        """Return log P of extended ids (from V on, out-of-vocabulary words), [B, K, n]; -inf at forbidden tokens."""
        in_vocabulary = tokens < self.logits.shape[-1]
        logits = self.logits.gather(-1, tokens.masked_fill(~in_vocabulary, 0))  # any valid id; masked in the next line
        # less the log-sum-exp of permitted words: log P among permitted words, whose part of P_vocab is e^share
        generated = logits.masked_fill(~in_vocabulary, float("-inf")) - self.total.unsqueeze(-1)
        if self.gate is None:  # a model that does not copy
            return generated
        mass = copied_mass(self.copied.unsqueeze(2), self.source.unsqueeze(1), tokens)           # [B, K, n]
        mixed = mix_log_probs(generated + self.share.unsqueeze(-1), mass, self.gate.unsqueeze(-1))
        mixed = mixed - self._normalizer().unsqueeze(-1)  # divided by the P of all permitted tokens
        return mixed.masked_fill(generated.isneginf() & (mass == 0), float("-inf"))  # `mix_log_probs` clamps log 0

    def _normalizer(self) -> Tensor:
        """Return the log-probability of all permitted tokens together, [B, K]."""
        return torch.logaddexp(logsigmoid(self.gate) + self.share, logsigmoid(-self.gate) + self.copied.sum(-1).log())


def inverse_cdf(weights: Tensor) -> Tensor:
    """Draw a column of each row with probability proportional to its weight, up to rounding (1e-7): [N, C] -> [N].

    A column with weight 0 is only drawn from a row whose weights are all 0. One random number is drawn for each row.
    In wide rows it first selects a block of columns, so that cumulative sums are taken over the sums of blocks and
    within one block, instead of over all columns.
    """
    size = output_layer.BLOCK  # columns of a block
    blocks = weights.shape[1] // size
    uniform = torch.rand(len(weights), 1, device=weights.device, dtype=weights.dtype)
    if blocks <= size:  # at most about 4,000 columns: a plain cumulative sum
        return _locate(weights, uniform * weights.sum(-1, keepdim=True))[0].squeeze(1)
    whole_blocks = weights[:, : blocks * size].unflatten(1, (blocks, size))
    rest = weights[:, blocks * size :]
    sums = torch.cat([whole_blocks.sum(-1), rest.sum(-1, keepdim=True)], -1)                     # [N, blocks + 1]
    block, target = _locate(sums, uniform * sums.sum(-1, keepdim=True))  # the target now counts from the block's start
    columns = size * block + torch.arange(size, device=weights.device)                           # [N, size]
    inside = weights.gather(1, columns.clamp_max(weights.shape[1] - 1))
    # the last block may end beyond the last column
    column, _ = _locate(inside.masked_fill(columns >= weights.shape[1], 0), target)
    return columns.gather(1, column).squeeze(1)


def _locate(weights: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the column where the sum of a row passes its target, and the target less the sum before it, [N, 1]."""
    sums = weights.cumsum(-1)                                                                    # [N, C]
    # rounding may lift the target to the total of the row, beyond which there is no column
    target = torch.minimum(target, sums[:, -1:].nextafter(torch.zeros_like(target)))
    column = torch.searchsorted(sums, target, right=True).clamp_max(sums.shape[1] - 1)
    return column, target - (sums.gather(1, column) - weights.gather(1, column))  # less the sum before the column
