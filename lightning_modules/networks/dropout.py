"""Dropout with a fast mask on CPUs, and a context without dropout."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

_LEVELS = 2**16  # 16 random bits are compared with a threshold


class Dropout(nn.Dropout):
    """`nn.Dropout` with masks that are fast to draw on a CPU.

    PyTorch's generator of masks (`bernoulli_`) is slow there: with this one a training step of the discourse parser is
    1.15 times as fast (`experiments/results/attention_dropout.md`). Four elements share one random number of 64 bits.
    The probability is rounded to a multiple of 1/65,536 (0.1 becomes 0.100006), and the elements that stay are scaled
    accordingly. Not for `torch.vmap`.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor with elements set to zero at random, the others scaled; [...] -> [...]."""
        has_fast_mask = x.device.type == "cpu" and not self.inplace and not torch.compiler.is_compiling()
        if not (self.training and 0 < self.p < 1 and has_fast_mask):
            return super().forward(x)
        mask = Mask(self.p)
        return x * mask.draw(torch.empty_like(x, requires_grad=False)).mul_(mask.scale)


class Mask:
    """Masks of dropout for tensors on the CPU: 1 where an element stays, 0 where it is dropped.

    The probability is rounded to a multiple of 1/65,536; `scale` is the factor of the elements that stay. With a seed
    the sequence of masks is reproducible; by default they are drawn from PyTorch's generator.
    """

    def __init__(self, probability: float, seed: int | None = None) -> None:
        dropped_levels = min(round(probability * _LEVELS), _LEVELS - 1)  # of 65,536; one at least keeps its element
        self.scale = _LEVELS / (_LEVELS - dropped_levels)
        self.threshold = dropped_levels - _LEVELS // 2  # levels are signed, -32,768 to 32,767
        self.generator = None if seed is None else torch.Generator().manual_seed(seed)

    def draw(self, out: Tensor) -> Tensor:
        """Fill a tensor on the CPU with the next mask, and return it: [...] -> [...]."""
        numbers = torch.empty((out.numel() + 3) // 4, dtype=torch.long, device=out.device)  # four levels in each
        numbers.random_(-(2**63), None, generator=self.generator)  # all 64 bits
        levels = numbers.view(torch.int16)[: out.numel()].view(out.shape)
        return torch.ge(levels, self.threshold, out=out)


@contextmanager
def without_dropout(module: nn.Module) -> Iterator[None]:
    """Disable dropout within a context in which gradients are computed; afterwards the previous modes are restored.

    Modules are set to eval mode, except those that need training mode, which get a dropout of 0: cuDNN computes no
    gradient of recurrent layers in eval mode, and `transformers` ignores activation checkpointing there.
    """
    modes = [(part, part.training) for part in module.modules()]
    probabilities = []  # attributes of dropout (`dropout`, `layerdrop`, ...) of the parts that stay in training mode
    module.eval()
    for part in module.modules():
        if isinstance(part, nn.RNNBase) or getattr(part, "gradient_checkpointing", False):
            part.training = True
            names = [name for name, value in vars(part).items() if "drop" in name and isinstance(value, float)]
            probabilities += [(part, name, getattr(part, name)) for name in names]
    for part, name, _ in probabilities:
        setattr(part, name, 0.0)
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
        for part, name, probability in probabilities:
            setattr(part, name, probability)
