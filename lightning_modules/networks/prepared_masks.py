"""Masks of padding in the form in which attention of Hugging Face's models uses them."""

import torch
from torch import Tensor
from transformers import PretrainedConfig

from lightning_modules.networks.pretrained_attention import NAME, attention_of

# families whose attention takes a mask of four dimensions as it is
_FAMILIES = {"bart", "bert", "led", "pegasus", "roberta"}
_IMPLEMENTATIONS = {"sdpa", "eager", NAME}


def prepared_mask(config: PretrainedConfig, mask: Tensor, queries: int, dtype: torch.dtype) -> Tensor:
    """Return the mask to pass to a model of Hugging Face for Q = `queries`, which then does not wait for a GPU.

    Given a mask [B, T], non-zero at tokens, transformers asks in each forward pass whether there is any padding. The
    result is [B, 1, Q, T], True at tokens (attention of PyTorch) or 0 at tokens and the lowest number at padding (eager
    attention); [B, T] for other implementations of attention and other families of models.
    """
    if not _takes_prepared_masks(config):
        return mask.long()
    return _as_used(config, mask.bool()[:, None, None].expand(-1, 1, queries, -1), dtype)


def causal_mask(config: PretrainedConfig, tokens: Tensor, dtype: torch.dtype) -> Tensor | None:
    """Return the mask of a decoder that reads whole sequences of tokens [B, T], as `prepared_mask`: [B, 1, T, T].

    None for families of models that compute it themselves.
    """
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
