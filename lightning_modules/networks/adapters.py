"""Low-rank adapters (LoRA, Hu et al. 2022, arXiv 2106.09685) of pretrained models, those of `peft`."""

import copy

from torch import nn

_DROPOUT = 0.1  # of the inputs of adapters
# queries and values of all attention, where LoRA was proposed, by the names of BART, PEGASUS, T5 and LED
QUERIES_AND_VALUES = r".*\.(q_proj|v_proj|q|v|query|value)"


def insert_adapters(model: nn.Module, rank: int, alpha: float, targets: str = QUERIES_AND_VALUES) -> None:
    """Freeze a model and insert adapters in place: h = W x + (alpha / rank) W_up W_down x, W_up initially zero.

    Args:
        model: model to insert adapters into.
        rank: rank of the update.
        alpha: see the equation.
        targets: regular expression for the names of linear layers.

    Raises:
        ValueError: if the rank or alpha is not positive, or `peft` is not installed.
    """
    if rank < 1 or alpha <= 0:
        raise ValueError(f"adapters have a rank and an alpha above 0, got {rank} and {alpha}")
    try:
        from peft import LoraConfig, inject_adapter_in_model  # takes seconds to load
    except ImportError:
        raise ValueError("adapters need the package peft: pip install 'precis-suite[lora]'") from None
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    options = {"r": rank, "lora_alpha": alpha, "lora_dropout": _DROPOUT}
    inject_adapter_in_model(LoraConfig(target_modules=targets, **options), model)


def merged(model: nn.Module) -> nn.Module:
    """Return a copy of a model whose adapters are added to the weights that they change; itself if it has none."""
    names = [name for name, layer in model.named_modules() if hasattr(layer, "lora_A")]
    if not names:
        return model
    model = copy.deepcopy(model)
    for name in names:
        layer = model.get_submodule(name)
        layer.merge()
        model.set_submodule(name, layer.get_base_layer())
    return model
