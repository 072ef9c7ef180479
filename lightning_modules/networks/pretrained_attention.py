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
# cross-attention of the families of BART, T5 and BERT, and what it calls the states of the documents
_CROSS_ATTENTION = {
    "encoder_attn": "key_value_states",
    "EncDecAttention": "key_value_states",
    "crossattention.self": "encoder_hidden_states",
}


def attention_of(config: PretrainedConfig) -> str:
    """Return the implementation of attention of a model, which `transformers` does not tell otherwise."""
    return config._attn_implementation


def use_dropout_attention(model: PreTrainedModel) -> None:
    """Replace PyTorch's and MPNet's attention by `dropout_attention.attention`, faster with dropout on a CPU."""
    for layer in model.modules():
        if type(layer).__name__ == "MPNetSelfAttention":  # which does not use the `AttentionInterface`
            layer.forward = partial(_mpnet_attention, layer)
    if attention_of(model.config) != "sdpa":  # not PyTorch's attention: it stays
        return
    AttentionInterface.register(NAME, _forward)
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
    """Run an MPNet layer in place of its `forward`, [B, T, D]; position biases [B, N, T, T] are equal for all texts."""
    if output_attentions or position_bias is None:  # `attention` returns no weights; MPNet itself passes a bias
        return type(layer).forward(layer, hidden_states, attention_mask, position_bias, output_attentions, **options)
    projections = (layer.q(hidden_states), layer.k(hidden_states), layer.v(hidden_states))
    query, key, value = (x.unflatten(-1, (layer.num_attention_heads, -1)).transpose(1, 2) for x in projections)
    bias = position_bias[:1].to(query.dtype)                                                 # [1, N, T, T]
    if attention_mask is not None:
        bias = bias + attention_mask.to(query.dtype)                                         # [B, N, T, T]
    mixed = attention(query, key, value, bias, layer.dropout.p if layer.training else 0.0)   # [B, N, T, d]
    return (layer.o(mixed.transpose(1, 2).flatten(2)),)


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
    """Return the attention of one layer, [B, T, N, d], in the form of the `AttentionInterface` of `transformers`.

    PyTorch's kernel serves calls without dropout, where `attention` is the same, and causal, T5's and grouped ones.
    """
    is_plain = attention_mask is not None and options.get("position_bias") is None  # no mask: maybe causal; T5: bias
    has_equal_heads = key.shape[1] == query.shape[1]  # no grouped-query attention
    if not (dropout and is_plain and has_equal_heads):
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **options)
    mixed = attention(query, key, value, attention_mask, dropout, scale=scaling)             # [B, N, T, d]
    return mixed.transpose(1, 2).contiguous(), None


def share_documents(model: PreTrainedModel) -> bool:
    """Let the decoder read K inputs per document, [B K, T], with states [B, S, D] and a mask of the documents alone.

    The positions of the K inputs are one sequence of K T queries in cross-attention, so that keys and values are
    computed, stored and read once per document. Returns whether the family of the model is supported.
    """
    is_supported = False
    for name, layer in model.named_modules():
        for ending, states_name in _CROSS_ATTENTION.items():  # end of a layer's name, and its argument for states
            if name.endswith(ending):
                layer.forward = partial(_attend_together, layer.forward, states_name)
                is_supported = True
    return is_supported


def _attend_together(forward: Callable[..., tuple], states_name: str, hidden_states: Tensor, **options: Any) -> tuple:
    """Run cross-attention, [B K, T, D], over states of documents [B, S, D], the argument called `states_name`."""
    documents = len(options[states_name])
    joined = hidden_states.reshape(documents, -1, hidden_states.shape[-1])                   # [B, K T, D]
    for name in {"attention_mask", "mask"} & options.keys():  # T5 calls it `mask`
        mask = options[name]
        if mask is not None and mask.dim() == 4:  # [B, 1, T, S], the same for all queries
            options[name] = mask[:, :, :1].expand(-1, -1, joined.shape[1], -1)
    mixed, *rest = forward(joined, **options)
    return mixed.reshape(hidden_states.shape), *rest


# families whose attention takes a mask of four dimensions as it is
_FAMILIES = {"bart", "bert", "led", "pegasus", "roberta"}
_IMPLEMENTATIONS = {"sdpa", "eager", NAME}


def prepared_mask(config: PretrainedConfig, mask: Tensor, queries: int, dtype: torch.dtype) -> Tensor:
    """Return the mask to pass to a model of Hugging Face for Q = `queries`, which then does not wait for a GPU.

    With a mask [B, T], nonzero at tokens, `transformers` asks in each forward pass whether there is any padding, which
    synchronizes with the GPU. The result is [B, 1, Q, T], True at tokens (attention of PyTorch) or 0 at tokens and the
    lowest number at padding (eager attention); [B, T] for other implementations of attention and families of models.
    """
    if not _takes_prepared_masks(config):
        return mask.long()
    return _as_used(config, mask.bool()[:, None, None].expand(-1, 1, queries, -1), dtype)  # additive if eager


def causal_mask(config: PretrainedConfig, tokens: Tensor, dtype: torch.dtype) -> Tensor | None:
    """Return the causal mask of a decoder over tokens [B, T], as `prepared_mask`; None for models that make it."""
    if not _takes_prepared_masks(config):
        return None
    length = tokens.shape[1]
    earlier = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()
    return _as_used(config, earlier.expand(len(tokens), 1, -1, -1), dtype)


def _takes_prepared_masks(config: PretrainedConfig) -> bool:
    return config.model_type in _FAMILIES and attention_of(config) in _IMPLEMENTATIONS


def _as_used(config: PretrainedConfig, visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask, True where a query sees a key, in the form of the implementation of attention."""
    if attention_of(config) == "eager":
        return torch.zeros_like(visible, dtype=dtype).masked_fill(~visible, torch.finfo(dtype).min)
    return visible
