"""Dropout with a fast mask on CPUs."""

import torch
from torch import Tensor, nn

_LEVELS = 2**16  # 16 random bits are compared with a threshold


class Dropout(nn.Dropout):
    """Dropout of elements, as `nn.Dropout`.

    On a CPU, PyTorch's generator of masks (`bernoulli_`) is slow: it takes 13 % of a training step of the discourse
    parser and 9 % of one of the Hierarchical Transformer. Here four elements share one random number of 64 bits, which
    is five times as fast. The probability is rounded to a multiple of 1/65,536 (0.1 becomes 0.100006), and the elements
    that stay are scaled accordingly.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor with elements set to zero at random, the others scaled; [...] -> [...]."""
        on_cpu = x.device.type == "cpu" and not torch.compiler.is_compiling()
        if not self.training or not on_cpu or not 0 < self.p < 1:
            return super().forward(x)
        mask = Mask(self.p)
        return x * mask.draw(torch.empty_like(x, requires_grad=False)).mul_(mask.scale)


class Mask:
    """Masks of dropout for tensors on the CPU: 1 where an element stays, 0 where it is dropped.

    Args:
        probability: probability of dropping an element, rounded to a multiple of 1/65,536.
        seed: seed of the sequence of masks; by default they are drawn from PyTorch's generator.

    Attributes:
        scale: factor of the elements that stay.
    """

    def __init__(self, probability: float, seed: int | None = None) -> None:
        level = min(round(probability * _LEVELS), _LEVELS - 1)
        self.scale, self.lowest = _LEVELS / (_LEVELS - level), level - _LEVELS // 2
        self.generator = None if seed is None else torch.Generator().manual_seed(seed)

    def draw(self, out: Tensor) -> Tensor:
        """Fill a tensor with the next mask, and return it."""
        numbers = torch.empty((out.numel() + 3) // 4, dtype=torch.long)
        numbers.random_(-(2**63), None, generator=self.generator)
        levels = numbers.view(torch.int16)[: out.numel()].view(out.shape)  # -32,768 to 32,767
        return torch.ge(levels, self.lowest, out=out)
