"""Dropout with a fast mask on CPUs, and a context without dropout."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

_LEVELS = 2**16  # values of 16 random bits; an element is dropped if its value is below a threshold


class Dropout(nn.Dropout):
    """`nn.Dropout` with masks that are fast to draw on a CPU.

    PyTorch's generator of masks (`bernoulli_`) is slow on CPUs; with this one, a training step of the discourse parser
    is 1.15 times as fast (`experiments/results/attention_dropout.md`). One random number of 64 bits serves 4 elements.
    The probability is rounded to a multiple of 1/65,536 (0.1 becomes 0.100006), and the elements that stay are scaled
    accordingly. It does not work in `torch.vmap`.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of any shape; in training, random elements are set to zero and the others are scaled."""
        can_use_mask = x.device.type == "cpu" and not self.inplace and not torch.compiler.is_compiling()
        if not (self.training and 0 < self.p < 1 and can_use_mask):
            return super().forward(x)
        mask = Mask(self.p)
        return x * mask.draw(torch.empty_like(x, requires_grad=False)).mul_(mask.scale)


class Mask:
    """Masks of dropout for tensors on the CPU: 1 where an element stays, 0 where it is dropped.

    An element is dropped if its level, a random 16-bit number, is low, so the probability is rounded to a multiple of
    1/65,536. `scale` is the factor of elements that stay. Masks are from a generator with the seed, or from PyTorch's.
    """

    def __init__(self, probability: float, seed: int | None = None) -> None:
        dropped_levels = min(round(probability * _LEVELS), _LEVELS - 1)  # not all, which would drop every element
        self.scale = _LEVELS / (_LEVELS - dropped_levels)
        self.threshold = dropped_levels - _LEVELS // 2  # `draw` reads levels as int16: -32,768 to 32,767
        self.generator = None if seed is None else torch.Generator().manual_seed(seed)

    def draw(self, out: Tensor) -> Tensor:
        """Fill a tensor on the CPU, of any shape, with the next mask, and return it."""
        numbers = torch.empty((out.numel() + 3) // 4, dtype=torch.long, device=out.device)  # each 4 levels of 16 bits
        numbers.random_(-(2**63), None, generator=self.generator)  # all 64 bits are random
        levels = numbers.view(torch.int16)[: out.numel()].view(out.shape)
        return torch.ge(levels, self.threshold, out=out)  # 1 (stays) where the level reaches the threshold


@contextmanager
def without_dropout(module: nn.Module) -> Iterator[None]:
    """Disable dropout within a context in which gradients are computed; afterwards the previous modes are restored.

    All modules are set to eval mode, except two kinds that need training mode, whose dropout is set to 0: cuDNN has
    no gradients of recurrent layers in eval mode, and `transformers` does not checkpoint activations in it.
    """
    modes = [(layer, layer.training) for layer in module.modules()]
    probabilities = []  # (layer, attribute, value) of each `dropout`, `layerdrop`, ... of layers left in training mode
    module.eval()
    for layer in module.modules():
        if isinstance(layer, nn.RNNBase) or getattr(layer, "gradient_checkpointing", False):
            layer.training = True
            names = [name for name, value in vars(layer).items() if "drop" in name and isinstance(value, float)]
            probabilities += [(layer, name, getattr(layer, name)) for name in names]
    for layer, name, _ in probabilities:
        setattr(layer, name, 0.0)
    try:
        yield
    finally:
        for layer, training in modes:
            layer.training = training
        for layer, name, probability in probabilities:
            setattr(layer, name, probability)
