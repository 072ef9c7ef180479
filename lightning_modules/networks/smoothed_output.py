"""What label smoothing needs of the softmax over a large vocabulary, in one pass."""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lightning_modules.networks.output_layer import slice_columns, slice_logits, vocabulary_slices, wide


class _SmoothedLogProbs(torch.autograd.Function):
    """log softmax(x W^T + b) at a target and its mean over the vocabulary, a slice of the vocabulary at a time, logits
    recomputed in the backward pass (as in `output_layer.linear_log_prob`)."""

    @staticmethod
    def forward(ctx, features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        ctx.dtypes, size = (weight.dtype, bias.dtype), len(weight)
        weight, bias = weight.to(features.dtype), bias.to(features.dtype)                    # once, not once a slice
        ctx.parts = vocabulary_slices(features, size)
        sums, chosen, totals = [], 0, 0
        for part in ctx.parts:
            logits = slice_logits(part, features, weight, bias)
            column, inside = slice_columns(part, targets)
            chosen = chosen + logits.gather(-1, column).masked_fill(~inside, 0)              # [N, 1]
            totals = totals + logits.sum(-1)                                                 # [N]
            top = logits.amax(-1, keepdim=True)
            sums.append((logits.sub_(top).exp_().sum(-1, keepdim=True).log_() + top).squeeze(-1))
        normalizer = torch.stack(sums).logsumexp(0)                                          # [N]
        ctx.save_for_backward(features, weight, bias, targets, normalizer)
        return chosen.squeeze(-1) - normalizer, totals / size - normalizer

    @staticmethod
    @once_differentiable
    def backward(ctx, at_target: Tensor, at_mean: Tensor):
        """d logits = g onehot + m / V - (g + m) P, g and m being the two gradients."""
        features, weight, bias, targets, normalizer = ctx.saved_tensors
        both = -(at_target + at_mean).unsqueeze(-1)                                          # [N, 1]
        share = (at_mean / len(weight)).unsqueeze(-1)
        grad_weight = torch.empty_like(weight, dtype=ctx.dtypes[0])                          # [V, H]
        grad_bias, slope = torch.empty_like(bias, dtype=ctx.dtypes[1]), 0
        for part in ctx.parts:
            grad = slice_logits(part, features, weight, bias).sub_(normalizer.unsqueeze(-1)).exp_()
            torch.addcmul(share, grad, both, out=grad)                                       # [N, words]
            column, inside = slice_columns(part, targets)
            grad.scatter_add_(-1, column, inside * at_target.unsqueeze(-1))
            grad_bias[part] = grad.sum(0)
            grad = grad.to(features.dtype)
            grad_weight[part] = grad.T @ features
            slope = slope + wide(grad @ weight[part])
        return slope.to(features.dtype), grad_weight, grad_bias, None


def smoothed_log_probs(features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """log P of one target a row under softmax(features W^T + b), and the mean of log P over the vocabulary.

    Label smoothing with epsilon is -(1 - epsilon) times the one - epsilon times the other. No [N, V] tensor is kept.

    Args:
        features: [N, H].
        weight: [V, H].
        bias: [V].
        targets: ids below V, [N].

    Returns:
        [N] each, in float32 or wider.
    """
    if torch.is_autocast_enabled(features.device.type):
        features = features.to(torch.get_autocast_dtype(features.device.type))
    return _SmoothedLogProbs.apply(features, weight, bias, targets)
