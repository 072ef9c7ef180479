"""Low-rank changes of pretrained weights (LoRA; Hu et al. 2022): W = W_0 + A B, with W_0 frozen.

They are parametrizations of the weights, so that the model itself is unchanged, and a step costs what it costs without
them: A B is added to the weight, not to the activations.
"""

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize


class LowRankChange(nn.Module):
    """Parametrization W_0 -> W_0 + A B of a weight [outputs, inputs]; A is zero at first.

    The rank is at most the smaller side of the weight.
    """

    def __init__(self, outputs: int, inputs: int, rank: int) -> None:
        super().__init__()
        rank = min(rank, outputs, inputs)
        self.left = nn.Parameter(torch.zeros(outputs, rank))
        self.right = nn.Parameter(torch.randn(rank, inputs) * inputs**-0.5)

    def forward(self, weight: Tensor) -> Tensor:
        """Return W: [outputs, inputs] -> [outputs, inputs]."""
        return weight + self.left @ self.right


def add_low_rank_changes(model: nn.Module, rank: int, alone: bool = True) -> None:
    """Train low-rank changes of some rank instead of the weights of all linear layers that are trained.

    With `alone` nothing else is trained; otherwise biases and all other trained parameters remain trained.

    Raises:
        ValueError: if the rank is not positive.
    """
    if rank < 1:
        raise ValueError(f"the rank of a change must be at least 1, got {rank}")
    layers = [module for module in model.modules() if isinstance(module, nn.Linear) and module.weight.requires_grad]
    if alone:
        model.requires_grad_(False)
    for layer in layers:
        layer.weight.requires_grad_(False)
        parametrize.register_parametrization(layer, "weight", LowRankChange(*layer.weight.shape, rank))


def merge_low_rank_changes(model: nn.Module) -> None:
    """Make W_0 + A B the weights themselves."""
    for layer in model.modules():
        if parametrize.is_parametrized(layer, "weight"):
            parametrize.remove_parametrizations(layer, "weight")
