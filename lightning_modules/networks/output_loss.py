"""Log-probabilities of targets under a softmax over a large vocabulary, computed in slices of the vocabulary."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lightning_modules.networks.output_layer import upcast_half

# logits computed at once: 2 MB fit into a CPU's caches, 512 MB keep a GPU busy
CHUNK_ELEMENTS = {"cpu": 2**19, "cuda": 2**27}
# up to this number they are kept for the backward pass (256 MB in float32); more are recomputed
KEPT_ELEMENTS = 2**26


def _slices(rows: int, size: int, device: torch.device) -> list[slice]:
    """Return slices of the vocabulary; the logits of all rows are computed for one slice at a time."""
    words = max(256, CHUNK_ELEMENTS.get(device.type, CHUNK_ELEMENTS["cuda"]) // max(1, rows))
    return [slice(start, min(start + words, size)) for start in range(0, size, words)]


class _Layer(NamedTuple):
    """Output layer and its inputs.

    The vocabulary is sliced instead of the rows, so that each part of the weight and of its gradient is loaded once.
    """

    features: Tensor  # [N, H]
    weight: Tensor  # [V, H]
    bias: Tensor  # [V]

    def logits(self, part: slice) -> Tensor:
        """Return the logits of a slice of words in float32 or float64, [N, words]."""
        return upcast_half(torch.addmm(self.bias[part], self.features, self.weight[part].T))


def _columns(part: slice, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the columns of targets [N] within a slice, and whether the slice contains them, both [N, 1]."""
    column = (targets - part.start).unsqueeze(1)
    return column.clamp(0, part.stop - part.start - 1), (column >= 0) & (column < part.stop - part.start)


class _LogProbs(torch.autograd.Function):
    """log softmax(x W^T + b) at a target and, if requested, its mean over the vocabulary."""

    @staticmethod
    def forward(ctx, features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, mean: bool, keep: bool):
        ctx.dtypes = weight.dtype, bias.dtype
        layer = _Layer(features, weight.to(features.dtype), bias.to(features.dtype))     # once, not for each slice
        ctx.parts = _slices(len(features), len(weight), features.device)
        stored, maxima, sums, target_logits, totals = [], [], [], 0, 0
        for part in ctx.parts:
            logits = layer.logits(part)
            column, inside = _columns(part, targets)
            target_logits = target_logits + logits.gather(-1, column).masked_fill(~inside, 0)  # [N, 1]
            totals = totals + logits.sum(-1) if mean else None                           # [N]
            maxima.append(logits.amax(-1, keepdim=True))                                 # [N, 1]
            exponentials = logits.sub_(maxima[-1]).exp_()
            sums.append(exponentials.sum(-1, keepdim=True).log_() + maxima[-1])
            if keep:
                stored.append(exponentials)
        normalizer = torch.stack(sums).logsumexp(0)                                      # [N, 1]
        ctx.save_for_backward(*layer, targets, normalizer, torch.stack(maxima), *stored)
        normalizer = normalizer.squeeze(-1)
        return target_logits.squeeze(-1) - normalizer, totals / len(weight) - normalizer if mean else None

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_target: Tensor, grad_mean: Tensor | None):
        """Backward pass: d logits = g onehot + m / V - (g + m) P, with g and m the gradients of the two outputs."""
        *layer, targets, normalizer, maxima = ctx.saved_tensors[:6]
        layer, stored = _Layer(*layer), ctx.saved_tensors[6:]
        features, weight, bias = layer
        grad_mean = torch.zeros_like(grad_target) if grad_mean is None else grad_mean
        negative_sum = -(grad_target + grad_mean).unsqueeze(-1)                          # [N, 1]
        grad_each = (grad_mean / len(weight)).unsqueeze(-1)                              # m / V, [N, 1]
        grad_weight = torch.empty_like(weight, dtype=ctx.dtypes[0])                      # [V, H]
        grad_bias, grad_features = torch.empty_like(bias, dtype=ctx.dtypes[1]), 0
        for number, part in enumerate(ctx.parts):
            maximum = maxima[number]
            exponentials = stored[number] if stored else layer.logits(part).sub_(maximum).exp_()
            factor = negative_sum * (maximum - normalizer).exp()  # -(g + m) and the softmax denominator, [N, 1]
            # kept values are not overwritten, since a second backward pass may need them
            grad = torch.addcmul(grad_each, exponentials, factor, out=None if stored else exponentials)  # [N, words]
            column, inside = _columns(part, targets)
            grad.scatter_add_(-1, column, inside * grad_target.unsqueeze(-1))
            grad_bias[part] = grad.sum(0)
            grad = grad.to(features.dtype)
            grad_weight[part] = grad.T @ features
            grad_features = grad_features + upcast_half(grad @ weight[part])
        return grad_features.to(features.dtype), grad_weight, grad_bias, None, None, None


def _kept(features: Tensor, weight: Tensor) -> bool:
    """Return whether the exponentials are kept for the backward pass, which saves a fourth of the matrix products."""
    trains = torch.is_grad_enabled() and (features.requires_grad or weight.requires_grad)
    return trains and len(features) * len(weight) <= KEPT_ELEMENTS


def _under_autocast(features: Tensor) -> Tensor:
    """Convert features to the dtype that autocast uses for matrix products."""
    device = features.device.type
    return features.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else features


def linear_log_prob(features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Return the log-probability of one target per row under softmax(features W^T + b).

    One slice of the vocabulary is computed at a time. Up to `KEPT_ELEMENTS` exponentials of a call are kept for
    the backward pass; more are computed again, so that no large [N, V] tensor exists.

    Args:
        features: [N, H].
        weight: [V, H].
        bias: [V].
        targets: ids below V, [N].

    Returns:
        [N], in float32 or float64.
    """
    return _LogProbs.apply(_under_autocast(features), weight, bias, targets, False, _kept(features, weight))[0]


def smoothed_log_probs(features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return log P of one target per row, as `linear_log_prob`, and the mean of log P over the vocabulary.

    The loss with label smoothing epsilon is -(1 - epsilon) times the first minus epsilon times the second.

    Returns:
        [N] each, in float32 or float64.
    """
    return _LogProbs.apply(_under_autocast(features), weight, bias, targets, True, _kept(features, weight))
