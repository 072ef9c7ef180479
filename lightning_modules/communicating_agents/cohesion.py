"""Semantic cohesion: similarity of the decoder states at the ends of consecutive sentences."""

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, pad

from lightning_modules.networks.output_layer import upcast_half


def cohesion(states: Tensor, ends: Tensor) -> Tensor:
    """Return sum_{q > 1} cos(s'_q, s'_{q-1}), with s'_q the state at the end of sentence q: [..., T, H] -> [...].

    This is the term that Celikyilmaz et al. 2018 add to the loss; 0 for fewer than two sentences. `ends` is True in
    steps that end a sentence, [..., T].
    """
    positions = torch.arange(ends.shape[-1], device=ends.device)
    last_end = positions.expand(ends.shape).masked_fill(~ends, -1).cummax(-1).values             # [..., T]
    previous_end = pad(last_end[..., :-1], (1, 0), value=-1)  # last end before this step, -1 if there is none
    index = previous_end.clamp_min(0).unsqueeze(-1).expand(states.shape)
    previous_states = states.gather(-2, index)                                                   # [..., T, H]
    similarity = cosine_similarity(upcast_half(states), upcast_half(previous_states), dim=-1)    # [..., T]
    return similarity.masked_fill(~(ends & (previous_end >= 0)), 0).sum(-1)
