"""How much the EDUs of a document attend to each other in a LED's encoder, with its discourse and without."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_modules.rstformer.injection import HeadTable, View
from lightning_modules.rstformer.led import DiscourseLED, LayerView, LEDWindowAttention

_ROWS = 256  # queries at a time


class EduAttention(NamedTuple):
    """Attention between EDUs of one document; what a row lacks to 1 goes to tokens in no EDU and to global ones.

    Attributes:
        with_discourse: entry [l, h, a, b] is the mean over a's tokens of the weight that head h of layer l gives to all
            tokens of b, [L, H, E, E].
        without: the same on the same inputs of each layer, scores left as they are, [L, H, E, E].
    """

    with_discourse: Tensor
    without: Tensor


@torch.no_grad()
def edu_attention(network: DiscourseLED, edus: int, **encoding) -> EduAttention:
    """Attention between EDUs of one document, in a module in eval mode.

    Args:
        network: whose encoder reads the document.
        edus: how many the document has, E.
        encoding: arguments of `DiscourseLED.encode`, of one document.

    Raises:
        ValueError: if there are several documents, or no discourse.
    """
    if encoding["input_ids"].shape[0] != 1 or encoding.get("discourse") is None:
        raise ValueError("attention between EDUs is of one document with discourse; give one, and not no_discourse")
    seen: list[tuple[Tensor, Tensor]] = []

    def look(module: LEDWindowAttention, arguments: tuple, given: dict, output: tuple) -> None:
        hidden = arguments[0] if arguments else given["hidden_states"]
        layer: LayerView = given["attention_mask"]
        token_edu = encoding["discourse"].token_edu[0].masked_fill(layer.batch.view.is_global[0], -1)
        table = None if layer.table is None else layer.table()
        both = (between_edus(module, hidden, layer.batch.view, t, token_edu, edus) for t in (table, None))
        seen.append(tuple(both))

    modules = [layer.self_attn.longformer_self_attn for layer in network.encoder.layers]
    hooks = [module.register_forward_hook(look, with_kwargs=True) for module in modules]
    try:
        network.encode(**encoding)
    finally:
        for hook in hooks:
            hook.remove()
    return EduAttention(*(torch.stack(maps) for maps in zip(*seen)))


def between_edus(
    module: LEDWindowAttention, hidden: Tensor, view: View, table: HeadTable | None, token_edu: Tensor, edus: int
) -> Tensor:
    """Weights of one layer, added up over the keys' EDUs and averaged over the queries': [H, E, E].

    Args:
        hidden: input of the layer, [1, T, D].
        token_edu: EDU of each token, -1 where there is none, [T].
        edus: E.
    """
    of_edu = torch.nn.functional.one_hot(token_edu + 1, edus + 1)[:, 1:].to(hidden.dtype)  # [T, E]
    total = hidden.new_zeros(module.heads, edus, edus)
    for start in range(0, hidden.shape[1], _ROWS):
        rows = torch.arange(start, min(start + _ROWS, hidden.shape[1]), device=hidden.device)
        weights = weights_of(module, hidden, view, table, rows)  # [H, Q, T]
        total += torch.einsum("qa,hqt,tb->hab", of_edu[rows], weights, of_edu)
    return total / of_edu.sum(0).clamp(min=1).unsqueeze(-1)


def weights_of(module: LEDWindowAttention, hidden: Tensor, view: View, table: HeadTable | None, rows: Tensor) -> Tensor:
    """Attention weights of some tokens of one document as usual (not global) ones: [H, Q, T]; 0 at padding.

    Args:
        hidden: input of the layer, [1, T, D].
        rows: the tokens that look, [Q].
    """
    q = module.split(module.query, hidden)[0, :, rows] / math.sqrt(hidden.shape[-1] // module.heads)
    scores = (q @ module.split(module.key, hidden)[0].transpose(1, 2)).float()  # [H, Q, T]
    if table is not None:
        scores = _with_table(scores, table, view.token_edu[0], rows)
    place = torch.arange(hidden.shape[1], device=hidden.device)
    near = (place - rows.unsqueeze(1)).abs() <= module.window
    visible = (near | view.is_global[0]) & view.real[0]  # [Q, T]
    weights = scores.masked_fill(~visible, float("-inf")).softmax(-1)
    return weights.masked_fill(~view.real[0, rows, None], 0).to(hidden.dtype)


def _with_table(scores: Tensor, table: HeadTable, token_edu: Tensor, rows: Tensor) -> Tensor:
    """Scores [H, Q, T] as discourse changes them."""
    values = table.values[0]  # [H, E, 2b + 1]
    ours, theirs, half = token_edu[rows].unsqueeze(1), token_edu, values.shape[2] // 2
    column = theirs - ours + half
    known = (ours >= 0) & (theirs >= 0) & (column >= 0) & (column < values.shape[2])  # [Q, T]
    found = values[:, ours.clamp(min=0).expand_as(column), column.clamp(0, values.shape[2] - 1)]
    changed = {"scale": scores * found, "shift": scores + found, "replace": found.expand_as(scores)}[table.operation]
    return torch.where(known, changed, scores)
