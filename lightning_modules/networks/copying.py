"""The output layer of a copying generator: what the loss needs, what beam search needs, and the whole distribution.

P(w) = p_gen P_vocab(w) + (1 - p_gen) sum_{i: w_i = w} a_i over the vocabulary and the document's own words
(equation 9 of See et al. 2017, arXiv 1704.04368). Ids below V are vocabulary words, V + k is the k-th word of the
document that the vocabulary lacks.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, logsigmoid

# logits alive at once: 16 MB stay near a CPU's caches, 512 MB fill a GPU
CHUNK_ELEMENTS = {"cpu": 2**22, "cuda": 2**27}


def wide(tensor: Tensor) -> Tensor:
    """A half-precision tensor in float32, any other as it is."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


class _LinearLogProb(torch.autograd.Function):
    """log softmax(x W^T + b)[target], a slice of the vocabulary at a time, logits recomputed in the backward pass.

    The vocabulary is sliced, not the rows: each part of W and of its gradient passes through the caches once.
    """

    @staticmethod
    def logits(part: slice, features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return wide(torch.addmm(bias[part], features, weight[part].T))               # [N, words]

    @staticmethod
    def columns(part: slice, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Where a slice holds the targets, and which of them it holds at all, both [N, 1]."""
        column = (targets - part.start).unsqueeze(1)
        return column.clamp(0, part.stop - part.start - 1), (column >= 0) & (column < part.stop - part.start)

    @staticmethod
    def forward(ctx, features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        ctx.dtypes = weight.dtype, bias.dtype
        weight, bias = weight.to(features.dtype), bias.to(features.dtype)            # once, not once a slice
        words = max(256, CHUNK_ELEMENTS.get(features.device.type, 2**22) // max(1, len(features)))
        ctx.parts = [slice(start, min(start + words, len(weight))) for start in range(0, len(weight), words)]
        sums, chosen = [], 0
        for part in ctx.parts:
            logits = _LinearLogProb.logits(part, features, weight, bias)
            sums.append(logits.logsumexp(-1))
            column, inside = _LinearLogProb.columns(part, targets)
            chosen = chosen + logits.gather(-1, column).masked_fill(~inside, 0)      # [N, 1]
        normalizer = torch.stack(sums).logsumexp(0)                                  # [N]
        ctx.save_for_backward(features, weight, bias, targets, normalizer)
        return chosen.squeeze(-1) - normalizer

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        features, weight, bias, targets, normalizer = ctx.saved_tensors
        scaled = (features * -grad.unsqueeze(-1)).to(features.dtype)                 # [N, H]
        grad_weight = torch.empty_like(weight, dtype=ctx.dtypes[0])                  # [V, H]
        grad_bias = torch.empty_like(bias, dtype=ctx.dtypes[1])
        slope = 0
        for part in ctx.parts:
            probabilities = _LinearLogProb.logits(part, features, weight, bias).sub_(normalizer.unsqueeze(-1)).exp_()
            column, inside = _LinearLogProb.columns(part, targets)
            probabilities.scatter_add_(-1, column, -inside.to(probabilities.dtype))  # P - onehot
            grad_bias[part] = -grad @ probabilities
            probabilities = probabilities.to(features.dtype)
            grad_weight[part] = probabilities.T @ scaled
            slope = slope - wide(probabilities @ weight[part])
        return (slope * grad.unsqueeze(-1)).to(features.dtype), grad_weight, grad_bias, None


def linear_log_prob(features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Log-probability of one target a row under softmax(features W^T + b), without an [N, V] tensor kept.

    Args:
        features: [N, H].
        weight: [V, H].
        bias: [V].
        targets: ids below V, [N].

    Returns:
        [N], in float32 or wider.
    """
    if torch.is_autocast_enabled(features.device.type):
        features = features.to(torch.get_autocast_dtype(features.device.type))
    return _LinearLogProb.apply(features, weight, bias, targets)


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


def log_normalizer(logits: Tensor, words: int = 4096) -> Tensor:
    """logsumexp over the last dimension, which is kept; `words` at a time, as many as a CPU's caches hold."""
    return torch.stack([part.logsumexp(-1) for part in logits.split(words, -1)], -1).logsumexp(-1, keepdim=True)


def best_words(logits: Tensor, count: int, width: int = 128) -> tuple[Tensor, Tensor]:
    """topk over a vocabulary: the best `count` words stand in the `count` blocks whose maxima are highest.

    Args:
        logits: [..., V].
        count: at most V.
        width: of a block.

    Returns:
        values and ids, [..., count].
    """
    blocks, size = logits.shape[-1] // width, logits.shape[-1]
    if (count + 1) * width >= size:
        return logits.topk(count, dim=-1)
    maxima = logits[..., : blocks * width].unflatten(-1, (blocks, width)).amax(-1)               # [..., blocks]
    starts = maxima.topk(count, dim=-1).indices.unsqueeze(-1) * width                            # [..., count, 1]
    inside = (starts + torch.arange(width, device=logits.device)).flatten(-2)                    # [..., count width]
    rest = torch.arange(blocks * width, size, device=logits.device).expand(*inside.shape[:-1], -1)
    columns = torch.cat([inside, rest], -1)
    values, order = logits.gather(-1, columns).topk(count, dim=-1)
    return values, columns.gather(-1, order)


def best_candidates(
    logits: Tensor, attention: Tensor, gate: Tensor, source: Tensor, first: Tensor, in_source: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """At least the `count` likeliest words of the mixture, exactly, without building it over the vocabulary.

    Words that the document lacks keep the order of their logits, so the likeliest `count` of the vocabulary together
    with all words of the document contain the likeliest `count` of the mixture.

    Args:
        logits: [B, K, V].
        attention: [B, K, S].
        gate: logit of p_gen, [B, K].
        source: extended ids, [B, S].
        first: for every source position the first position that holds the same word, [B, S]; padding points at itself.
        in_source: True at vocabulary words that the document has, [B, V].
        count: how many are needed.

    Returns:
        ids and log-probabilities, [B, K, count + S]; a word that stands there twice has -inf the second time.
    """
    _, beams, vocab_size = logits.shape
    normalizer = log_normalizer(logits)                                                          # [B, K, 1]
    top, top_ids = best_words(logits, min(count, vocab_size))                                    # [B, K, C]
    absent = top.isneginf()
    top = mix_log_probs(top - normalizer, torch.zeros_like(top), gate.unsqueeze(-1)).masked_fill(absent, float("-inf"))
    known = in_source.unsqueeze(1).expand(-1, beams, -1).gather(-1, top_ids)
    top = top.masked_fill(known, float("-inf"))  # scored below, as source words

    mass = torch.zeros_like(attention).scatter_add_(-1, first.unsqueeze(1).expand_as(attention), attention)
    inside = (source < vocab_size).unsqueeze(1)                                                  # [B, 1, S]
    generated = logits.gather(-1, source.clamp_max(vocab_size - 1).unsqueeze(1).expand(-1, beams, -1)) - normalizer
    copied = mix_log_probs(generated.masked_fill(~inside, float("-inf")), mass, gate.unsqueeze(-1))
    repeated = first != torch.arange(source.shape[1], device=source.device)                      # [B, S]
    copied = copied.masked_fill(repeated.unsqueeze(1), float("-inf"))
    ids = torch.cat([top_ids, source.unsqueeze(1).expand(-1, beams, -1)], -1)                    # [B, K, C + S]
    return ids, torch.cat([top, copied], -1)


def first_positions(source: Tensor) -> Tensor:
    """For every position of a row the first position with the same id: [B, S] -> [B, S]."""
    same = source.unsqueeze(2) == source.unsqueeze(1)                                            # [B, S, S]
    return same.to(torch.uint8).argmax(-1)


def vocabulary_logits(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Logits over the vocabulary, in float32 or wider: [..., H] -> [..., V]."""
    return wide(linear(features, weight, bias))
