"""Attention between the EDUs of a document in the encoder of a LED, with and without discourse."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_modules.rstformer.dense_attention import with_discourse
from lightning_modules.rstformer.injection import HeadTable, View
from lightning_modules.rstformer.led import DiscourseLED, LayerView, LEDWindowAttention

_ROWS = 256  # queries at a time, so that no tensor of all pairs of tokens is needed


class EduAttention(NamedTuple):
    """Attention between EDUs of one document; the rest of each row is attention to global tokens and those in no EDU.

    Entry [l, h, a, b] is the attention of head h of layer l to all tokens of EDU b, averaged over the tokens of EDU a.
    """

    with_discourse: Tensor  # [L, H, E, E]
    without: Tensor  # for the same inputs of each layer, with unchanged scores, [L, H, E, E]


@torch.no_grad()
def edu_attention(network: DiscourseLED, edus: int, **encoding) -> EduAttention:
    """Return the attention between E = `edus` EDUs of one document, by a model in eval mode; see `DiscourseLED.encode`.

    Raises a `ValueError` if there are several documents, or no discourse.
    """
    if encoding["input_ids"].shape[0] != 1 or encoding.get("discourse") is None:
        raise ValueError("attention between EDUs needs a single document with discourse, so not no_discourse")
    layers: list[tuple[Tensor, Tensor]] = []  # attention of each layer with and without discourse, [H, E, E] each

    def record(module: LEDWindowAttention, arguments: tuple, keywords: dict, output: tuple) -> None:
        """Forward hook: compute the attention of a layer again from its input, since it is never stored."""
        hidden = arguments[0] if arguments else keywords["hidden_states"]  # [1, T, D]
        layer: LayerView = keywords["attention_mask"]  # masks and table, taken by `LEDWindowAttention` as its mask
        token_edu = encoding["discourse"].token_edu[0].masked_fill(layer.view.is_global[0], -1)  # none if global
        table = None if layer.table is None else layer.table()
        layers.append(tuple(between_edus(module, hidden, layer.view, t, token_edu, edus) for t in (table, None)))

    modules = [layer.self_attn.longformer_self_attn for layer in network.encoder.layers]
    hooks = [module.register_forward_hook(record, with_kwargs=True) for module in modules]
    try:
        network.encode(**encoding)
    finally:
        for hook in hooks:
            hook.remove()
    return EduAttention(*(torch.stack(maps) for maps in zip(*layers)))


def between_edus(
    module: LEDWindowAttention, hidden: Tensor, view: View, table: HeadTable | None, token_edu: Tensor, edus: int
) -> Tensor:
    """Return the attention of one layer, summed over tokens of key EDUs, averaged over those of query EDUs, [H, E, E].

    `hidden` is the layer's input, [1, T, D], `token_edu` each token's EDU or -1, [T], `table` None without discourse.
    """
    of_edu = torch.nn.functional.one_hot(token_edu + 1, edus + 1)[:, 1:].to(hidden.dtype)  # [T, E]
    total = hidden.new_zeros(module.heads, edus, edus)
    for start in range(0, hidden.shape[1], _ROWS):  # some queries at a time, to bound memory
        rows = torch.arange(start, min(start + _ROWS, hidden.shape[1]), device=hidden.device)  # positions of queries
        weights = weights_of(module, hidden, view, table, rows)  # [H, Q, T]
        total += torch.einsum("qa,hqt,tb->hab", of_edu[rows], weights, of_edu)
    return total / of_edu.sum(0).clamp(min=1).unsqueeze(-1)  # an EDU beyond the truncated text has no token


def weights_of(module: LEDWindowAttention, hidden: Tensor, view: View, table: HeadTable | None, rows: Tensor) -> Tensor:
    """Return the local attention weights of Q tokens at positions `rows` in one document, [H, Q, T]; 0 at padding."""
    q = module.split(module.query, hidden)[0, :, rows] / math.sqrt(hidden.shape[-1] // module.heads)  # [H, Q, D / H]
    scores = (q @ module.split(module.key, hidden)[0].transpose(1, 2)).float()  # [H, Q, T]
    if table is not None:  # discourse changes the scores
        scores = with_discourse(scores.unsqueeze(0), table, view.token_edu[:, rows], view.token_edu).squeeze(0)
    positions = torch.arange(hidden.shape[1], device=hidden.device)
    near = (positions - rows.unsqueeze(1)).abs() <= module.window
    visible = (near | view.is_global[0]) & view.token_mask[0]  # [Q, T]; 0 is the only document
    weights = scores.masked_fill(~visible, float("-inf")).softmax(-1)
    return weights.masked_fill(~view.token_mask[0, rows, None], 0).to(hidden.dtype)
