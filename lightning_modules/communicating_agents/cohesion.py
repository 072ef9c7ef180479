"""Semantic cohesion: how alike the decoder's states are at the ends of consecutive sentences."""

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, pad

from lightning_modules.networks.output_layer import wide


def cohesion(states: Tensor, ends: Tensor) -> Tensor:
    """sum_{q > 1} cos(s'_q, s'_{q-1}), s'_q the state in the step that ends sentence q (Celikyilmaz et al. 2018).

    Args:
        states: decoder states, [..., T, H].
        ends: True in steps that end a sentence, [..., T].

    Returns:
        [...]; 0 with fewer than two sentences.
    """
    positions = torch.arange(ends.shape[-1], device=ends.device)
    latest = positions.expand(ends.shape).masked_fill(~ends, -1).cummax(-1).values               # [..., T]
    before = pad(latest[..., :-1], (1, 0), value=-1)  # the end before this step, -1 if there is none
    earlier = states.gather(-2, before.clamp_min(0).unsqueeze(-1).expand(states.shape))          # [..., T, H]
    similarity = cosine_similarity(wide(states), wide(earlier), dim=-1)
    return similarity.masked_fill(~(ends & (before >= 0)), 0).sum(-1)
