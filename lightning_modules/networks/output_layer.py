"""Output layer over a large vocabulary: logits, log-probabilities of targets, and the most probable words."""

from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, pad
from torch.utils.checkpoint import checkpoint

# exponentials that are kept for the backward pass (1 GB in float32); more are computed again, some rows at a time
KEPT_ELEMENTS = 2**28
# logits computed at once: 2 MB fit into a CPU's caches, 512 MB keep a GPU busy
SLICE_ELEMENTS = {"cpu": 2**19, "cuda": 2**27}
DECODING_WORDS = 512  # words in a slice of `DecodingLayer` on CPUs
BLOCK = 64  # words of which the search for the largest logits looks at the maximum first


def upcast_half(tensor: Tensor) -> Tensor:
    """Convert half precision to float32; other tensors are returned unchanged."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def vocabulary_logits(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return logits over the vocabulary in float32 or float64: [..., H] -> [..., V]."""
    return upcast_half(linear(features, weight, bias))


class DecodingLayer(NamedTuple):
    """Output layer for many decoding steps, without gradient; on CPUs a batched product over slices of the vocabulary.

    The slices fit into caches: `best_words` takes 0.7 times the time of `linear`, `logsumexp` and `topk` over the whole
    vocabulary (V = 50,000, H = 256, batch of 32, one thread or two).
    """

    weight: Tensor  # [V, H], in autocast's dtype if enabled
    bias: Tensor  # [V]
    slices: Tensor | None  # weights and, as the last row, bias of whole slices, [slices, H + 1, words]; only on CPUs

    @classmethod
    @torch.no_grad()
    def of(cls, weight: Tensor, bias: Tensor) -> Self:
        """Lay out weight [V, H] and bias [V] for the device that they are on."""
        device = weight.device.type
        if torch.is_autocast_enabled(device):
            weight, bias = (tensor.to(torch.get_autocast_dtype(device)) for tensor in (weight, bias))
        if device != "cpu":
            return cls(weight, bias, None)
        whole = len(weight) // DECODING_WORDS * DECODING_WORDS  # words in whole slices
        rows = torch.cat([weight[:whole], bias[:whole].unsqueeze(1)], 1)             # [whole, H + 1]
        return cls(weight, bias, rows.unflatten(0, (-1, DECODING_WORDS)).mT.contiguous())

    @torch.no_grad()
    def logits(self, features: Tensor) -> Tensor:
        """Return logits over the vocabulary in float32 or float64: [..., H] -> [..., V]."""
        if self.slices is None:
            return vocabulary_logits(features, self.weight, self.bias)
        rows = features.flatten(0, -2).to(self.weight.dtype)                         # [N, H]
        logits = rows.new_empty(len(rows), len(self.weight))                         # [N, V]
        slices, _, words = self.slices.shape
        whole = slices * words  # words in whole slices
        # both products write to the columns of their words, which saves a copy; 1 is the factor of the bias
        factors = pad(rows, (0, 1), value=1).expand(slices, -1, -1)                  # [slices, N, H + 1]
        torch.bmm(factors, self.slices, out=logits[:, :whole].unflatten(1, (slices, words)).transpose(0, 1))
        torch.addmm(self.bias[whole:], rows, self.weight[whole:].T, out=logits[:, whole:])
        return upcast_half(logits).unflatten(0, features.shape[:-1])


def largest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the columns and values of the `count` largest logits, as `topk`: [..., V] -> [..., C] each.

    The largest logits are in the C blocks of 64 words with the largest maxima, and `topk` over these blocks takes a
    fourth of the time of `topk` over all words (V = 50,000, C = 12, one thread).
    """
    blocks = logits.shape[-1] // BLOCK
    if blocks < 2 * count:  # C blocks are more than half of the words
        best = logits.topk(count, dim=-1)
        return best.indices, best.values
    # a block is every `blocks`-th word: a column below, so that the maxima of all blocks are taken row by row
    maxima = logits[..., : blocks * BLOCK].unflatten(-1, (BLOCK, blocks)).amax(-2)   # [..., blocks]
    first = maxima.topk(count, dim=-1).indices                                       # [..., C]
    within = torch.arange(0, blocks * BLOCK, blocks, device=logits.device)           # offsets in a block, [BLOCK]
    # words after the last block, always candidates
    rest = torch.arange(blocks * BLOCK, logits.shape[-1], device=logits.device).expand(*first.shape[:-1], -1)
    columns = torch.cat([(first.unsqueeze(-1) + within).flatten(-2), rest], -1)      # [..., C BLOCK + rest]
    best = logits.gather(-1, columns).topk(count, dim=-1)
    return columns.gather(-1, best.indices), best.values


def best_words(features: Tensor, layer: DecodingLayer, count: int) -> tuple[Tensor, Tensor]:
    """Return ids and log-probabilities of the `count` most probable words (at most all): [..., H] -> [..., C] each."""
    logits = layer.logits(features)
    ids, values = largest(logits, min(count, len(layer.weight)))
    return ids, values - logits.logsumexp(-1, keepdim=True)


def smoothed_log_probs(features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return log P of a target per row, and the mean log P over the vocabulary: [N, H], [V, H], [V], [N] -> [N] each.

    P is softmax(features W^T + b), at least in float32. The loss with label smoothing epsilon is -(1 - epsilon) times
    the first minus epsilon times the second.
    """
    device = features.device.type
    if torch.is_autocast_enabled(device):  # the dtype that autocast uses for matrix products
        features = features.to(torch.get_autocast_dtype(device))
    max_rows = max(1, KEPT_ELEMENTS // len(weight))  # `_LogProbs` keeps up to 1 GB of exponentials [rows, V]
    if len(features) <= max_rows:
        return _LogProbs.apply(features, weight, bias, targets)
    parts = []
    for rows, row_targets in zip(features.split(max_rows), targets.split(max_rows)):  # computed again for the gradient
        parts.append(checkpoint(_LogProbs.apply, rows, weight, bias, row_targets, use_reentrant=False))
    chosen, means = zip(*parts)
    return torch.cat(chosen), torch.cat(means)


class _LogProbs(torch.autograd.Function):
    """log softmax(x W^T + b) at a target, and its mean over V; the vocabulary is read once, one slice at a time."""

    @staticmethod
    def forward(ctx, features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return log P of targets [N] and the mean of log P, [N] each; see `smoothed_log_probs`."""
        ctx.dtypes = weight.dtype, bias.dtype  # of the gradients; under autocast, the product has another dtype
        weight, bias = weight.to(features.dtype), bias.to(features.dtype)
        ctx.parts = _vocabulary_slices(len(features), len(weight), features.device)  # slices of words
        maxima, normalizers = [], []  # of each slice
        stored = []  # exp(logits - maximum) of each slice
        target_logits = totals = 0
        for part in ctx.parts:
            logits = upcast_half(torch.addmm(bias[part], features, weight[part].T))      # [N, words]
            column, inside = _columns_in(part, targets)  # [N, 1]; for targets outside, `column` is arbitrary
            target_logits = target_logits + logits.gather(-1, column).masked_fill(~inside, 0)  # [N, 1]
            totals = totals + logits.sum(-1)                                             # for the mean, [N]
            maxima.append(logits.amax(-1, keepdim=True))                                 # [N, 1]
            stored.append(logits.sub_(maxima[-1]).exp_())                                # for the backward pass
            normalizers.append(stored[-1].sum(-1, keepdim=True).log_() + maxima[-1])     # log-sum-exp, [N, 1]
        normalizer = torch.stack(normalizers).logsumexp(0)                               # of all slices, [N, 1]
        ctx.save_for_backward(features, weight, bias, targets, normalizer, torch.stack(maxima), *stored)
        return (target_logits - normalizer).squeeze(-1), totals / len(weight) - normalizer.squeeze(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_target: Tensor, grad_mean: Tensor):
        """Backward pass: d logits = g onehot + m / V - (g + m) P, with g and m the gradients of the two outputs."""
        features, weight, bias, targets, normalizer, maxima, *stored = ctx.saved_tensors
        negative_sum = -(grad_target + grad_mean).unsqueeze(-1)                          # [N, 1]
        grad_each = (grad_mean / len(weight)).unsqueeze(-1)                              # m / V, [N, 1]
        grad_weight = torch.empty_like(weight, dtype=ctx.dtypes[0])  # as the parameter, [V, H]
        grad_bias = torch.empty_like(bias, dtype=ctx.dtypes[1])
        grad_features = 0
        for part, maximum, exponentials in zip(ctx.parts, maxima, stored):  # for each slice of the vocabulary
            # exponentials times exp(maximum - normalizer) are P
            factor = negative_sum * (maximum - normalizer).exp()                         # [N, 1]
            grad = torch.addcmul(grad_each, exponentials, factor)                        # d logits, [N, words]
            column, inside = _columns_in(part, targets)  # [N, 1]; for targets outside, `column` is arbitrary
            grad.scatter_add_(-1, column, inside * grad_target.unsqueeze(-1))
            grad_bias[part] = grad.sum(0)
            grad = grad.to(features.dtype)
            grad_weight[part] = grad.T @ features
            grad_features = grad_features + upcast_half(grad @ weight[part])
        return grad_features.to(features.dtype), grad_weight, grad_bias, None


class KnownLogProbs(torch.autograd.Function):
    """log P at a target, if P = softmax(x W^T + b) and the log-sum-exp of the logits, [N], are known.

    P is given as consecutive rows, [n, V], in any number of tensors. Other arguments as of `smoothed_log_probs`.
    """

    @staticmethod
    def forward(ctx, features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, total: Tensor, *probabilities):
        """Return log P of targets, [N]."""
        ctx.save_for_backward(features, weight, targets, *probabilities)
        columns = targets.unsqueeze(1).split([len(rows) for rows in probabilities])
        chosen = torch.cat([rows.gather(1, column) for rows, column in zip(probabilities, columns)]).squeeze(1)  # P
        logits = upcast_half((features * weight[targets]).sum(-1) + bias[targets])
        return torch.where(chosen < torch.finfo(chosen.dtype).tiny, logits - total, chosen.log())  # P may underflow

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        """Backward pass: d logits = -g (P - onehot), [N, V]; -g multiplies features and their gradients, [N, H]."""
        features, weight, targets, *probabilities = ctx.saved_tensors
        grad_weight, grad_bias = torch.empty_like(weight), weight.new_empty(len(weight))
        grad_features = 0
        factor = -grad.unsqueeze(-1)                                                     # [N, 1]
        scaled = (factor * features).to(features.dtype)
        for part in _vocabulary_slices(len(features), len(weight), features.device):
            # P - onehot of a slice, a copy that fits into caches, [N, words]
            excess = torch.cat([rows[:, part] for rows in probabilities])
            column, inside = _columns_in(part, targets)  # [N, 1]; for targets outside, `column` is arbitrary
            excess.scatter_add_(-1, column, -inside.to(excess.dtype))
            grad_bias[part] = excess.T.mv(factor.squeeze(-1))
            excess = excess.to(features.dtype)
            grad_weight[part] = excess.T @ scaled
            grad_features = grad_features + upcast_half(excess @ weight[part].to(features.dtype))
        grad_features = (factor * grad_features).to(features.dtype)
        return grad_features, grad_weight, grad_bias, None, None, *[None] * len(probabilities)


def _vocabulary_slices(rows: int, size: int, device: torch.device) -> list[slice]:
    """Cut a vocabulary of `size` words into slices, for each of which the logits of all rows are computed at once."""
    max_elements = SLICE_ELEMENTS.get(device.type, SLICE_ELEMENTS["cuda"])
    words = max(1024, max_elements // max(1, rows))  # at least 1,024, for speed with many rows; `rows` may be 0
    return [slice(start, min(start + words, size)) for start in range(0, size, words)]


def _columns_in(part: slice, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the columns of targets [N] in a slice (any if they are outside), and whether they are inside, [N, 1]."""
    column = (targets - part.start).unsqueeze(1)
    return column.clamp(0, part.stop - part.start - 1), (column >= 0) & (column < part.stop - part.start)
