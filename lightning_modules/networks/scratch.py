"""Memory that is used again."""

from math import prod

from torch import Tensor


class Scratch:
    """Memory for intermediate results of steps that follow each other: new pages for each would cost as much time as
    the arithmetic that fills them."""

    def __init__(self) -> None:
        self.flat: dict[str, Tensor] = {}

    def __call__(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """A tensor of a shape, with any values, that holds until the same name is asked for again; its type and device
        are those of `like` when the name was first asked for."""
        size = prod(shape)
        if name not in self.flat or self.flat[name].numel() < size:
            self.flat[name] = like.new_empty(size)
        return self.flat[name][:size].view(shape)
