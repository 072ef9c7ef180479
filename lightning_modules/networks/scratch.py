"""Memory that is used again."""

from math import prod

import torch
from torch import Tensor


class Scratch:
    """Memory for intermediate results of steps that follow each other: new pages for each would cost as much time as
    the arithmetic that fills them."""

    def __init__(self) -> None:
        self.flat: dict[tuple, Tensor] = {}

    def __call__(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """A tensor of a shape, with any values, that holds until the same name is asked for again; its type and device
        are those of `like`."""
        # what is made in inference mode cannot be written to outside of it
        size, key = prod(shape), (name, like.dtype, like.device, torch.is_inference_mode_enabled())
        if key not in self.flat or self.flat[key].numel() < size:
            self.flat[key] = like.new_empty(size)
        return self.flat[key][:size].view(shape)
