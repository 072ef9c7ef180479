"""Dropout that does not wait for random numbers."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_STEPS = 2**16


def dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Zeroes each element with probability p and divides the others by 1 - p.

    On a CPU, where PyTorch draws a float for every element one after the other, it compares 16 bits an element, four of
    which are one draw: about twice as fast. There p is rounded to 1 / 65,536.

    Raises:
        ValueError: if p is not in [0, 1).
    """
    if not 0 <= p < 1:
        raise ValueError(f"dropout is at least 0 and below 1, got {p}")
    if not training or p == 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    count, below = x.numel(), round(p * _STEPS)
    draws = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None)           # all 64 bits
    bits = draws.view(torch.int16)[:count]
    kept = (bits >= below - _STEPS // 2).to(x.dtype).mul_(_STEPS / (_STEPS - below))
    return x * kept.view(x.shape)


class Dropout(nn.Module):
    """`dropout` in training, nothing in evaluation.

    Args:
        p: probability of zero.

    Raises:
        ValueError: if p is not in [0, 1).
    """

    def __init__(self, p: float = 0.1) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout is at least 0 and below 1, got {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"
