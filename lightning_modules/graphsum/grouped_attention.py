"""Attention with a softmax within each group of keys and given weights of the groups, as GraphSum attends to tokens."""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# weights alive at once: 2 MB stay in a CPU's caches, 512 MB fill a GPU
PART_ELEMENTS = {"cpu": 2**19, "cuda": 2**27}


class _GroupedAttention(torch.autograd.Function):
    """Stores its inputs and recomputes the weights in the backward pass, some rows at a time: autograd would keep two
    tensors of the size of all weights, [R, T, L n]."""

    @staticmethod
    def gamma(rows: slice, query: Tensor, keys: Tensor, bias: Tensor, groups: int) -> Tensor:
        scores = torch.baddbmm(bias[rows], query[rows], keys[rows].mT, alpha=query.shape[-1] ** -0.5)   # [r, T, L n]
        return scores.unflatten(-1, (groups, -1)).softmax(-1, dtype=scores.dtype)                # [r, T, L, n]

    @staticmethod
    def forward(ctx, query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, shares: Tensor) -> Tensor:
        ctx.save_for_backward(query, keys, values, bias, shares)
        mixed = torch.empty_like(query)
        for rows in _parts(query, keys):
            weights = _GroupedAttention.gamma(rows, query, keys, bias, shares.shape[-1])
            weights *= shares[rows].unsqueeze(-1)
            torch.bmm(weights.flatten(-2), values[rows], out=mixed[rows])                        # [r, T, d]
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        """Compute, with w = share gamma and g = d loss / d w, d share = sum_i g gamma and d score = w (g - d share)."""
        query, keys, values, bias, shares = ctx.saved_tensors
        grad, scale = grad.contiguous(), query.shape[-1] ** -0.5
        *grads, of_shares = (torch.empty_like(tensor) for tensor in (query, keys, values, shares))
        for rows in _parts(query, keys):
            weights = _GroupedAttention.gamma(rows, query, keys, bias, shares.shape[-1])         # [r, T, L, n]
            slope = (grad[rows] @ values[rows].mT).view_as(weights)
            slope *= weights
            of_share, share = slope.sum(-1, keepdim=True), shares[rows].unsqueeze(-1)            # [r, T, L, 1]
            slope.addcmul_(weights, of_share, value=-1).mul_(share * scale)
            slope, weights = slope.flatten(-2), weights.mul_(share).flatten(-2)                  # [r, T, L n]
            products = ((slope, keys), (slope.mT, query), (weights.mT, grad))
            for full_grad, (left, right) in zip(grads, products):
                torch.bmm(left, right[rows], out=full_grad[rows])
            of_shares[rows] = of_share.squeeze(-1)
        return *grads, None, of_shares


def _parts(query: Tensor, keys: Tensor) -> list[slice]:
    """Split the rows of [R, T, d] into parts of at most `PART_ELEMENTS` elements."""
    max_elements = PART_ELEMENTS.get(query.device.type, PART_ELEMENTS["cuda"])
    rows = max(1, max_elements // (query.shape[1] * keys.shape[1]))
    return [slice(start, start + rows) for start in range(0, len(query), rows)]


def grouped_attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, shares: Tensor) -> Tensor:
    """Return sum_j share_tj sum_i gamma_tji v_ji, gamma a softmax over the n keys of each of L groups, [B, N, T, d].

    No tensor of the size of gamma, [B, N, T, L n], is kept for the backward pass.

    Args:
        query: [B, N, T, d].
        keys, values: [B, N, L n, d].
        mask: True at valid keys, at least one in each group, [B, L, n].
        shares: weights of the groups, [B, N, T, L].
    """
    bias = query.new_zeros(mask.shape).masked_fill_(~mask, float("-inf")).flatten(1)             # [B, L n]
    bias = bias[:, None, None].expand(-1, query.shape[1], -1, -1)                                # [B, N, 1, L n]
    rows = (tensor.flatten(0, 1) for tensor in (query, keys, values, bias, shares.to(query.dtype)))
    return _GroupedAttention.apply(*rows).view_as(query)
