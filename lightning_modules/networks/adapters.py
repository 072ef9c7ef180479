"""Low-rank changes of pretrained weights (LoRA, Hu et al. 2022, arXiv 2106.09685): those of `peft`, and ours."""

import copy

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

_DROPOUT = 0.1  # of the inputs of adapters
# queries and values of all attention, where LoRA was proposed, by the names of BART, PEGASUS, T5 and LED
QUERIES_AND_VALUES = r".*\.(q_proj|v_proj|q|v|query|value)"


def insert_adapters(model: nn.Module, rank: int, alpha: float, targets: str = QUERIES_AND_VALUES) -> None:
    """Freeze a model and add LoRA adapters to linear layers, in place: W x + (alpha / rank) W_up W_down dropout(x).

    W_up is zero at first. `targets` is a regular expression for the names of the layers, by default the projections to
    queries and values. Dropout is 0.1. A `ValueError` if rank or alpha is not positive or `peft` is not installed.
    """
    if rank < 1 or alpha <= 0:
        raise ValueError(f"rank and alpha of adapters must be above 0, got {rank} and {alpha}")
    try:
        from peft import LoraConfig, inject_adapter_in_model  # takes seconds to load
    except ImportError:
        raise ValueError("adapters need the package peft: pip install 'precis-suite[lora]'") from None
    model.requires_grad_(False)
    config = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=_DROPOUT, target_modules=targets)
    inject_adapter_in_model(config, model)


def merged(model: nn.Module, with_changes: bool = True) -> nn.Module:
    """Return a copy of a model with the changes of its adapters added, or left out; the model itself if it has none."""
    names = [name for name, layer in model.named_modules() if hasattr(layer, "lora_A")]  # layers with an adapter
    if not names:
        return model
    model = copy.deepcopy(model)
    for name in names:
        layer = model.get_submodule(name)
        if with_changes:
            layer.merge()
        model.set_submodule(name, layer.get_base_layer())  # the linear layer, without the adapter around it
    return model


class LowRankChange(nn.Module):
    """Low-rank change W_0 + A B of a weight W_0 [outputs, inputs], as a parametrization of PyTorch; A is zero at first.

    A step takes about as long as without, because A B is computed once and added to the weight, not applied to each
    input. A larger rank than the weight's smaller side is reduced to this side.
    """

    def __init__(self, outputs: int, inputs: int, rank: int) -> None:
        super().__init__()
        rank = min(rank, outputs, inputs)
        self.left = nn.Parameter(torch.zeros(outputs, rank))  # A
        self.right = nn.Parameter(torch.randn(rank, inputs) * inputs**-0.5)  # B; B x has the variance of x

    def forward(self, weight: Tensor) -> Tensor:
        """Return W_0 + A B: [outputs, inputs] -> [outputs, inputs]."""
        return weight + self.left @ self.right


def add_low_rank_changes(model: nn.Module, rank: int, alone: bool = True) -> None:
    """Freeze the weight W_0 of each trained linear layer, and train a `LowRankChange` A B of this rank instead.

    With `alone`, only these changes are trained; otherwise also biases and all other parameters trained so far.
    """
    if rank < 1:
        raise ValueError(f"the rank of a change must be at least 1, got {rank}")
    layers = [module for module in model.modules() if isinstance(module, nn.Linear) and module.weight.requires_grad]
    if alone:
        model.requires_grad_(False)
    for layer in layers:
        layer.weight.requires_grad_(False)
        parametrize.register_parametrization(layer, "weight", LowRankChange(*layer.weight.shape, rank))  # W_0 + A B


def merge_low_rank_changes(model: nn.Module) -> None:
    """Replace each weight that has a low-rank change by the sum W_0 + A B, in place."""
    for layer in model.modules():
        if parametrize.is_parametrized(layer, "weight"):
            parametrize.remove_parametrizations(layer, "weight")
