"""Attention between the elementary discourse units (EDUs) of a document in the encoder of a LED."""

import math
from contextlib import ExitStack
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_modules.rstformer.dense_attention import with_discourse
from lightning_modules.rstformer.injection import HeadTable, View
from lightning_modules.rstformer.led import DiscourseLED, LayerView, LEDWindowAttention

_QUERIES_AT_ONCE = 256  # queries at a time, so that no tensor of all pairs of tokens is needed


class EduAttention(NamedTuple):
    """Attention between the E elementary discourse units (EDUs) of one document, for H heads in each of L layers.

    Entry [l, h, a, b] is the attention of head h of layer l to all tokens of EDU b, averaged over the tokens of EDU a.
    Sums over b may be below 1, because tokens also attend to global tokens and to tokens in no EDU.
    """

    with_discourse: Tensor  # [L, H, E, E]
    without: Tensor  # with the same input of each layer, but scores that discourse does not change, [L, H, E, E]


@torch.no_grad()
def edu_attention(network: DiscourseLED, edus: int, **encoding) -> EduAttention:
    """Return the attention between the `edus` EDUs of a document; `encoding`: the arguments of `DiscourseLED.encode`.

    The model must be in eval mode. Raises a `ValueError` if there are several documents, or no discourse.
    """
    if encoding["input_ids"].shape[0] != 1 or encoding.get("discourse") is None:
        raise ValueError("attention between EDUs needs a single document with discourse, so not no_discourse")
    maps_by_layer: list[tuple[Tensor, Tensor]] = []  # attention with and without discourse, [H, E, E] each

    def record(module: LEDWindowAttention, arguments: tuple, keywords: dict, output: tuple) -> None:
        """Forward hook: compute the attention of a layer again from its input, since weights are never stored."""
        hidden = arguments[0] if arguments else keywords["hidden_states"]  # [1, T, D]
        layer: LayerView = keywords["attention_mask"]  # with masks, and the table by which discourse changes scores
        token_edu = encoding["discourse"].token_edu[0].masked_fill(layer.view.is_global[0], -1)  # -1: no EDU
        table = None if layer.table is None else layer.table()
        maps_by_layer.append(tuple(between_edus(module, hidden, layer.view, t, token_edu, edus) for t in (table, None)))

    with ExitStack() as hooks:  # which it removes at the end
        for layer in network.encoder.layers:
            attention = layer.self_attn.longformer_self_attn
            hooks.enter_context(attention.register_forward_hook(record, with_kwargs=True))
        network.encode(**encoding)
    return EduAttention(*map(torch.stack, zip(*maps_by_layer)))  # a stack of all maps with discourse, one without


def between_edus(
    module: LEDWindowAttention, hidden: Tensor, view: View, table: HeadTable | None, token_edu: Tensor, edus: int
) -> Tensor:
    """Return the mean attention of the tokens of EDU a to all tokens of EDU b in one layer, [H, E, E] for E = `edus`.

    `hidden` is the layer's input, [1, T, D]; `token_edu` has each token's EDU, -1 for none, [T]. Without a `table` of
    discourse, attention is plain.
    """
    is_in_edu = torch.nn.functional.one_hot(token_edu + 1, edus + 1)[:, 1:].to(hidden.dtype)  # [T, E], 0 in no EDU
    total = hidden.new_zeros(module.heads, edus, edus)
    for start in range(0, hidden.shape[1], _QUERIES_AT_ONCE):
        queries = torch.arange(start, min(start + _QUERIES_AT_ONCE, hidden.shape[1]), device=hidden.device)  # positions
        weights = weights_of(module, hidden, view, table, queries)  # of Q queries, [H, Q, T]
        total += torch.einsum("qa,hqt,tb->hab", is_in_edu[queries], weights, is_in_edu)
    return total / is_in_edu.sum(0).clamp(min=1).unsqueeze(-1)  # an EDU in truncated text has no token


def weights_of(module: LEDWindowAttention, hidden: Tensor, view: View, table: HeadTable | None, rows: Tensor) -> Tensor:
    """Return weights of windowed attention of Q tokens at positions `rows` in one document, [H, Q, T]; 0 at padding."""
    q = module.split(module.query, hidden)[0, :, rows] / math.sqrt(hidden.shape[-1] // module.heads)  # [H, Q, D / H]
    scores = (q @ module.split(module.key, hidden)[0].transpose(1, 2)).float()  # [H, Q, T]
    if table is not None:  # discourse changes the scores
        scores = with_discourse(scores.unsqueeze(0), table, view.token_edu[:, rows], view.token_edu).squeeze(0)
    positions = torch.arange(hidden.shape[1], device=hidden.device)
    is_near = (positions - rows.unsqueeze(1)).abs() <= module.window
    visible = (is_near | view.is_global[0]) & view.token_mask[0]  # [Q, T]; the batch has one document
    weights = scores.masked_fill(~visible, float("-inf")).softmax(-1)
    return weights.masked_fill(~view.token_mask[0, rows, None], 0).to(hidden.dtype)
