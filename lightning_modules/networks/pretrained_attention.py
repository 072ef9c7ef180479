"""Attention of Hugging Face's models: fused kernels with dropout, prepared masks, documents shared by summaries."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PretrainedConfig, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from lightning_modules.networks.dropout_attention import attention

NAME = "dropout_attention"
# names of the cross-attention layers of BART, T5 and BERT, and of their argument for the states of the documents
_CROSS_ATTENTION = {
    "encoder_attn": "key_value_states",
    "EncDecAttention": "key_value_states",
    "crossattention.self": "encoder_hidden_states",
}


def attention_of(config: PretrainedConfig) -> str:
    """Return the implementation of attention of a model, such as sdpa; `transformers` has no public name for it."""
    return config._attn_implementation


def use_dropout_attention(model: PreTrainedModel) -> None:
    """Replace attention of PyTorch (sdpa) and of MPNet by `dropout_attention.attention`, fast with dropout on a CPU."""
    for layer in model.modules():
        if type(layer).__name__ == "MPNetSelfAttention":  # without `AttentionInterface`
            layer.forward = partial(_mpnet_attention, layer)
    if attention_of(model.config) != "sdpa":  # another implementation, such as eager, stays
        return
    AttentionInterface.register(NAME, _interface_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)  # the masks of PyTorch's attention
    model.set_attn_implementation(NAME)


def _mpnet_attention(
    layer: nn.Module,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    position_bias: Tensor | None = None,
    output_attentions: bool = False,
    **options: Any,
) -> tuple:
    """Replace `forward` of an MPNet layer: [B, T, D] -> ([B, T, D],); position biases [B, N, T, T], equal for all B."""
    if output_attentions or position_bias is None:  # `attention` returns no weights; MPNet always passes a bias
        return type(layer).forward(layer, hidden_states, attention_mask, position_bias, output_attentions, **options)
    projections = (layer.q(hidden_states), layer.k(hidden_states), layer.v(hidden_states))
    query, key, value = (x.unflatten(-1, (layer.num_attention_heads, -1)).transpose(1, 2) for x in projections)
    bias = position_bias[:1].to(query.dtype)                                                 # [1, N, T, T]
    if attention_mask is not None:
        bias = bias + attention_mask.to(query.dtype)                                         # [B, N, T, T]
    attended = attention(query, key, value, bias, layer.dropout.p if layer.training else 0.0)  # [B, N, T, d]
    return (layer.o(attended.transpose(1, 2).flatten(2)),)


def _interface_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Return the output of one attention layer, [B, T, N, d], and None for its weights, as `AttentionInterface` asks.

    Queries are [B, N, T, d]. PyTorch's kernel runs without dropout or mask, with T5's bias, and if heads share keys.
    """
    is_plain = attention_mask is not None and options.get("position_bias") is None  # without a mask, it may be causal
    has_equal_heads = key.shape[1] == query.shape[1]  # no grouped-query attention
    if not (dropout and is_plain and has_equal_heads):
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **options)
    attended = attention(query, key, value, attention_mask, dropout, scale=scaling)          # [B, N, T, d]
    return attended.transpose(1, 2).contiguous(), None


def share_documents(model: PreTrainedModel) -> bool:
    """Let the decoder read K inputs of each of B documents, [B K, T], with states [B, S, D], not repeated K times.

    Cross-attention then takes the positions of the K inputs as one sequence of K T queries, so that keys and values are
    computed, stored and read once per document. Returns whether the model is of a supported family.
    """
    is_supported = False
    for name, layer in model.named_modules():
        for ending, states_name in _CROSS_ATTENTION.items():  # end of a layer's name; name of its argument for states
            if name.endswith(ending):
                layer.forward = partial(_attend_together, layer.forward, states_name)
                is_supported = True
    return is_supported


def _attend_together(forward: Callable[..., tuple], states_name: str, hidden_states: Tensor, **options: Any) -> tuple:
    """Let K inputs of each document, [B K, T, D], attend as [B, K T, D] to `options[states_name]`, [B, S, D]."""
    documents = len(options[states_name])
    joined = hidden_states.reshape(documents, -1, hidden_states.shape[-1])                   # [B, K T, D]
    for name in {"attention_mask", "mask"} & options.keys():  # T5 calls it `mask`
        mask = options[name]
        if mask is not None and mask.dim() == 4:  # [B, 1, T, S], the same for all queries
            options[name] = mask[:, :, :1].expand(-1, -1, joined.shape[1], -1)
    attended, *others = forward(joined, **options)  # others: weights, and T5's position bias
    return attended.reshape(hidden_states.shape), *others


# families of models, and implementations of attention, that take a mask of four dimensions as it is
_FAMILIES = {"bart", "bert", "led", "pegasus", "roberta"}
_IMPLEMENTATIONS = {"sdpa", "eager", NAME}


def prepared_mask(config: PretrainedConfig, mask: Tensor, queries: int, dtype: torch.dtype) -> Tensor:
    """Return a mask [B, T], nonzero at tokens, in a form with which a Hugging Face model does not wait for the GPU.

    With a mask [B, T], `transformers` asks in each forward pass whether there is any padding, which synchronizes with
    the GPU. For Q = `queries` the result is [B, 1, Q, T]: True at tokens (PyTorch's attention), or 0 at tokens and the
    lowest number at padding (eager attention). It is [B, T] for other implementations and families of models.
    """
    if not _takes_4d_masks(config):
        return mask.long()
    return _as_expected(config, mask.bool()[:, None, None].expand(-1, 1, queries, -1), dtype)


def causal_mask(config: PretrainedConfig, tokens: Tensor, dtype: torch.dtype) -> Tensor | None:
    """Return the causal mask of a decoder over tokens [B, T], [B, 1, T, T]; None for models that make it themselves."""
    if not _takes_4d_masks(config):
        return None
    length = tokens.shape[1]
    earlier = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()
    return _as_expected(config, earlier.expand(len(tokens), 1, -1, -1), dtype)


def _takes_4d_masks(config: PretrainedConfig) -> bool:
    return config.model_type in _FAMILIES and attention_of(config) in _IMPLEMENTATIONS


def _as_expected(config: PretrainedConfig, visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask, True where a query sees a key, as the model's attention expects it: eager attention adds it."""
    if attention_of(config) == "eager":
        return torch.zeros_like(visible, dtype=dtype).masked_fill(~visible, torch.finfo(dtype).min)
    return visible
