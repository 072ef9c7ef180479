"""Attention of Hugging Face's models with the dropout of `dropout_attention`."""

from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PretrainedConfig, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from lightning_modules.networks.dropout_attention import attention

NAME = "dropout_attention"


def attention_of(config: PretrainedConfig) -> str:
    """Return the implementation of attention of a model, which `transformers` does not tell otherwise."""
    return config._attn_implementation


def use_dropout_attention(model: PreTrainedModel) -> None:
    """Replace PyTorch's attention by `dropout_attention.attention` in a model; other implementations stay."""
    if attention_of(model.config) != "sdpa":
        return
    AttentionInterface.register(NAME, _forward)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)


def _forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Return the attention of one layer, [B, T, N, d], for `transformers`."""
    plain = attention_mask is not None and options.get("position_bias") is None
    if not dropout or not plain or key.shape[1] != query.shape[1]:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **options)
    mixed = attention(query, key, value, attention_mask, dropout, scale=scaling)             # [B, N, T, d]
    return mixed.transpose(1, 2).contiguous(), None
