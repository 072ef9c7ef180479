"""What a loss needs of the softmax over a large vocabulary: log-probabilities of targets, slice by slice of it."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lightning_modules.networks.output_layer import upcast_half

# logits computed at once: 2 MB stay in a CPU's caches, 512 MB fill a GPU
CHUNK_ELEMENTS = {"cpu": 2**19, "cuda": 2**27}
# so few are kept for the backward pass (64 and 256 MB in float32), more are computed again
KEPT_ELEMENTS = {"cpu": 2**24, "cuda": 2**26}


def _slices(rows: int, size: int, device: torch.device) -> list[slice]:
    """A vocabulary in slices, for each of which the logits of all rows are computed at once."""
    words = max(256, CHUNK_ELEMENTS.get(device.type, CHUNK_ELEMENTS["cuda"]) // max(1, rows))
    return [slice(start, min(start + words, size)) for start in range(0, size, words)]


class _Layer(NamedTuple):
    """An output layer and the rows that it is for; its vocabulary is sliced, not the rows, so that each part of the
    weight and of its gradient passes through the caches once."""

    features: Tensor  # [N, H]
    weight: Tensor  # [V, H]
    bias: Tensor  # [V]

    def logits(self, part: slice) -> Tensor:
        """Of the words of a slice, in float32 or wider, [N, words]."""
        return upcast_half(torch.addmm(self.bias[part], self.features, self.weight[part].T))


def _columns(part: slice, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Where a slice holds the targets [N], and which of them it holds at all, both [N, 1]."""
    column = (targets - part.start).unsqueeze(1)
    return column.clamp(0, part.stop - part.start - 1), (column >= 0) & (column < part.stop - part.start)


class _LogProbs(torch.autograd.Function):
    """log softmax(x W^T + b) at a target and, if wanted, its mean over the vocabulary."""

    @staticmethod
    def forward(ctx, features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, mean: bool, keep: bool):
        ctx.dtypes = weight.dtype, bias.dtype
        layer = _Layer(features, weight.to(features.dtype), bias.to(features.dtype))     # once, not once a slice
        ctx.parts = _slices(len(features), len(weight), features.device)
        kept, tops, sums, chosen, totals = [], [], [], 0, 0
        for part in ctx.parts:
            logits = layer.logits(part)
            column, inside = _columns(part, targets)
            chosen = chosen + logits.gather(-1, column).masked_fill(~inside, 0)          # [N, 1]
            totals = totals + logits.sum(-1) if mean else None                           # [N]
            tops.append(logits.amax(-1, keepdim=True))                                   # [N, 1]
            exponentials = logits.sub_(tops[-1]).exp_()
            sums.append(exponentials.sum(-1, keepdim=True).log_() + tops[-1])
            if keep:
                kept.append(exponentials)
        normalizer = torch.stack(sums).logsumexp(0)                                      # [N, 1]
        ctx.save_for_backward(*layer, targets, normalizer, torch.stack(tops), *kept)
        normalizer = normalizer.squeeze(-1)
        return chosen.squeeze(-1) - normalizer, totals / len(weight) - normalizer if mean else None

    @staticmethod
    @once_differentiable
    def backward(ctx, at_target: Tensor, at_mean: Tensor | None):
        """d logits = g onehot + m / V - (g + m) P, g and m being the two gradients."""
        *layer, targets, normalizer, tops = ctx.saved_tensors[:6]
        layer, kept = _Layer(*layer), ctx.saved_tensors[6:]
        features, weight, bias = layer
        at_mean = torch.zeros_like(at_target) if at_mean is None else at_mean
        both = -(at_target + at_mean).unsqueeze(-1)                                      # [N, 1]
        share = (at_mean / len(weight)).unsqueeze(-1)
        grad_weight = torch.empty_like(weight, dtype=ctx.dtypes[0])                      # [V, H]
        grad_bias, slope = torch.empty_like(bias, dtype=ctx.dtypes[1]), 0
        for number, part in enumerate(ctx.parts):
            top = tops[number]
            values = kept[number] if kept else layer.logits(part).sub_(top).exp_()
            factor = both * (top - normalizer).exp()
            grad = torch.addcmul(share, values, factor, out=None if kept else values)    # [N, words]
            column, inside = _columns(part, targets)
            grad.scatter_add_(-1, column, inside * at_target.unsqueeze(-1))
            grad_bias[part] = grad.sum(0)
            grad = grad.to(features.dtype)
            grad_weight[part] = grad.T @ features
            slope = slope + upcast_half(grad @ weight[part])
        return slope.to(features.dtype), grad_weight, grad_bias, None, None, None


def _under_autocast(features: Tensor) -> Tensor:
    """Features in the precision that autocast would give to a product with them."""
    device = features.device.type
    return features.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else features


def linear_log_prob(features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Log-probability of one target a row under softmax(features W^T + b).

    A slice of the vocabulary is computed at a time, and again in the backward pass: no [N, V] tensor is kept.

    Args:
        features: [N, H].
        weight: [V, H].
        bias: [V].
        targets: ids below V, [N].

    Returns:
        [N], in float32 or wider.
    """
    return _LogProbs.apply(_under_autocast(features), weight, bias, targets, False, False)[0]


def smoothed_log_probs(features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """log P of one target a row, as `linear_log_prob`, and the mean of log P over the vocabulary.

    Label smoothing with epsilon is -(1 - epsilon) times the one - epsilon times the other. What the backward pass needs
    of all words is kept where they are few (`KEPT_ELEMENTS`), which saves a fourth of the layer's products.

    Returns:
        [N] each, in float32 or wider.
    """
    most = KEPT_ELEMENTS.get(features.device.type, KEPT_ELEMENTS["cuda"])
    keep = torch.is_grad_enabled() and len(features) * len(weight) <= most
    return _LogProbs.apply(_under_autocast(features), weight, bias, targets, True, keep)
