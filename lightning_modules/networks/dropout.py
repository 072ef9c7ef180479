"""Dropout that does not wait for random numbers."""

import numpy as np
import torch
from numpy.random import SFC64
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

_STEPS = 2**16
_MANY = 2**17  # elements from which a generator of NumPy's draws faster, its seeding included


def _bits(count: int) -> Tensor:
    """16 random bits each, int16 [count]: four are one draw."""
    draws = -(-count // 4)
    if count < _MANY:
        return torch.empty(draws, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)[:count]
    seed = torch.randint(2**63 - 1, ()).item()
    return torch.from_numpy(SFC64(seed).random_raw(draws).view(np.int16))[:count]


def _kept(x: Tensor, p: float) -> tuple[Tensor, float]:
    """Ones where an element of x is kept and zeros elsewhere, of its shape, and what the kept are multiplied with."""
    below = round(p * _STEPS)
    bits = _bits(x.numel()).view(x.shape)
    return (bits >= below - _STEPS // 2).to(x.dtype), _STEPS / (_STEPS - below)


def _check(p: float) -> None:
    if not 0 <= p < 1:
        raise ValueError(f"dropout is at least 0 and below 1, got {p}")


def dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Zeroes each element with probability p and divides the others by 1 - p.

    On a CPU, where PyTorch draws a float for every element one after the other, it compares 16 bits an element, four of
    which are one draw, for large tensors of NumPy's SFC64 with a seed that PyTorch draws. There p is rounded to
    1 / 65,536.

    Raises:
        ValueError: if p is not in [0, 1).
    """
    _check(p)
    if not training or p == 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    kept, scale = _kept(x, p)
    return x * kept.mul_(scale)


class _ReluDropout(torch.autograd.Function):
    """Keeps its output alone, whose positive elements are those that pass a gradient on."""

    @staticmethod
    def forward(ctx, x: Tensor, p: float) -> Tensor:
        kept, ctx.scale = _kept(x, p)
        out = kept.mul_(x).clamp_min_(0).mul_(ctx.scale)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(grad, out, 0).mul_(ctx.scale), None


def relu_dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """`dropout` of relu(x), the same elements for the same seed; on a CPU the backward pass keeps its output alone.

    Raises:
        ValueError: if p is not in [0, 1).
    """
    _check(p)
    if not training or p == 0 or x.device.type != "cpu":
        return dropout(x.relu(), p, training)
    return _ReluDropout.apply(x, p)


class Dropout(nn.Module):
    """`dropout` in training, nothing in evaluation.

    Args:
        p: probability of zero.

    Raises:
        ValueError: if p is not in [0, 1).
    """

    def __init__(self, p: float = 0.1) -> None:
        super().__init__()
        _check(p)
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"
