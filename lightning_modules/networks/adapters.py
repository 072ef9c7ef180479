"""Low-rank changes of pretrained weights (LoRA, Hu et al. 2022, arXiv 2106.09685): those of `peft`, and ours."""

import copy

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

_DROPOUT = 0.1  # of the inputs of adapters
# queries and values of all attention, where LoRA was proposed, by the names of BART, PEGASUS, T5 and LED
QUERIES_AND_VALUES = r".*\.(q_proj|v_proj|q|v|query|value)"


def insert_adapters(model: nn.Module, rank: int, alpha: float, targets: str = QUERIES_AND_VALUES) -> None:
    """Freeze a model and insert adapters in place: h = W x + (alpha / rank) W_up W_down x, W_up initially zero.

    `targets` is a regular expression for the names of linear layers, by default queries and values. Inputs of adapters
    have dropout 0.1. A `ValueError` if the rank or alpha is not positive, or `peft` is not installed.
    """
    if rank < 1 or alpha <= 0:
        raise ValueError(f"rank and alpha of adapters must be above 0, got {rank} and {alpha}")
    try:
        from peft import LoraConfig, inject_adapter_in_model  # takes seconds to load
    except ImportError:
        raise ValueError("adapters need the package peft: pip install 'precis-suite[lora]'") from None
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    options = {"r": rank, "lora_alpha": alpha, "lora_dropout": _DROPOUT}
    inject_adapter_in_model(LoraConfig(target_modules=targets, **options), model)


def merged(model: nn.Module) -> nn.Module:
    """Return a copy of a model with adapters added to the weights that they change; the model itself if it has none."""
    names = [name for name, layer in model.named_modules() if hasattr(layer, "lora_A")]  # of layers with an adapter
    if not names:
        return model
    model = copy.deepcopy(model)
    for name in names:
        layer = model.get_submodule(name)
        layer.merge()
        model.set_submodule(name, layer.get_base_layer())  # the linear layer, without the adapter around it
    return model


class LowRankChange(nn.Module):
    """Parametrization W_0 -> W_0 + A B of a weight [outputs, inputs]; A is zero at first.

    The model itself is unchanged, and a step costs what it costs without, because A B is added to the weight. The rank
    is at most the smaller side of the weight.
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
    """Train a `LowRankChange` of each linear layer whose weight is trained, instead of the weight itself.

    With `alone` nothing else is trained; otherwise biases and all other trained parameters remain trained.
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
