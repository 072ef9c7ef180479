"""Sliding-window and global attention in one kernel (`flex_attention`): the table is looked up while scores are made.

Its backward pass needs CUDA; on a CPU it is for inference. It has no dropout.

The kernel is compiled once for each shape. So lengths, numbers of EDUs and half-widths are filled up to one of a few
sizes (`rounded`); blocks of nothing but padding cost nothing, as they are left out of the block mask.
"""

import math
from functools import cache, lru_cache

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from lightning_modules.rstformer.injection import HeadTable, Operation, View, neutral

BLOCK = 128  # tokens to a side of a block of the kernel
_EDUS, _HALF = 64, 8  # the least that the others are filled up to
# Shapes that are compiled at most. Beyond them PyTorch would silently go on with all T^2 scores: an error is better.
_SHAPES = {"recompile_limit": 64, "fail_on_recompile_limit_hit": True}


def rounded(size: int, least: int) -> int:
    """A size filled up to a multiple of `least` that is at most a quarter more, with four of them an octave."""
    step = max(least, 2 ** max(0, (size - 1).bit_length() - 3))
    return -(-size // step) * step


@lru_cache(maxsize=32)
def _window_blocks(length: int, window: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Which blocks of keys a block of queries reaches in part, and which with every pair: two of bool [N, N]."""
    count = length // BLOCK
    apart = (torch.arange(count)[:, None] - torch.arange(count)).abs() * BLOCK        # of their first tokens
    reached, whole = apart - (BLOCK - 1) <= window, apart + BLOCK - 1 <= window
    return reached.to(device), whole.to(device)


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Number and indices of the blocks in each row, those first: bool [B, N, N] -> int32 [B, 1, N], [B, 1, N, N]."""
    order = blocks.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32).unsqueeze(1), order.to(torch.int32).unsqueeze(1)


def block_mask(view: View, window: int) -> BlockMask:
    """Who sees whom as the kernel wants it. The window's part is cached by length and window; padding and global
    tokens are added by blocks, so that nothing of size [T, T] is made.

    Args:
        view: of a batch.
        window: tokens to each side.

    Returns:
        The mask of the batch filled up to its `rounded` length.
    """
    length = rounded(view.real.shape[1], BLOCK)
    real, is_global = _longer(view.real, length, False), _longer(view.is_global, length, False)
    reached, whole = _window_blocks(length, window, real.device)
    present, everywhere = (flags.unflatten(1, (-1, BLOCK)) for flags in (real, is_global))
    keys = present.any(-1)[:, None] & (reached | everywhere.any(-1)[:, None])
    seen = present.any(-1)[:, :, None] & keys                                         # [B, N, N]
    full = seen & whole & present.all(-1)[:, None]  # these skip the mask

    def visible(b, h, i, j):
        return real[b, j] & (((i - j).abs() <= window) | is_global[b, j])

    return BlockMask.from_kv_blocks(*_listed(seen & ~full), *_listed(full), BLOCK_SIZE=BLOCK, mask_mod=visible)


def _longer(x: Tensor, length: int, value: float | bool, dim: int = 1) -> Tensor:
    """A tensor filled up behind, in one of its dimensions."""
    behind = (0, 0) * (x.dim() - 1 - dim) + (0, length - x.shape[dim])
    return torch.nn.functional.pad(x, behind, value=value)


def _filled_up(table: HeadTable) -> Tensor:
    """A table's values for more EDUs and a wider band: [B, H, E, 2b + 1] -> [B, H, E', 2b' + 1]."""
    values, value = table.values, neutral(table.operation)
    half, edus = values.shape[-1] // 2, values.shape[2]
    side, behind = rounded(max(half, 1), _HALF) - half, rounded(max(edus, 1), _EDUS) - edus
    # nan would get through where pairs beyond the band, which windows do not reach, are looked up
    return torch.nn.functional.pad(values, (side, side, 0, behind), value=0.0 if math.isnan(value) else value)


def _score_mod(token_edu: Tensor, values: Tensor, operation: Operation):
    """The table's operation on one score, see `HeadTable`."""
    width, value = values.shape[-1], neutral(operation)

    def modify(score, b, h, i, j):
        row, other = token_edu[b, i], token_edu[b, j]
        column = other - row + width // 2
        known = (row >= 0) & (other >= 0) & (column >= 0) & (column < width)
        found = values[b, h, row.clamp(min=0), column.clamp(0, width - 1)]
        if operation == "replace":
            return torch.where(known, found.to(score.dtype), score)
        found = torch.where(known, found, value).to(score.dtype)
        return score * found if operation == "scale" else score + found

    return modify


@cache
def _compiled():
    return torch.compile(flex_attention, dynamic=False)


def fused_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    view: View,
    table: HeadTable | None,
    window: int,
    mask: BlockMask | None = None,
    compiled: bool = True,
) -> Tensor:
    """The same as `chunked_attention.chunked_attention`, without dropout.

    Args:
        q, k, v, view, table, window: as there.
        mask: `block_mask` of the view and window, where several layers share it.
        compiled: False for PyTorch's own slow reading of the same, which keeps all T^2 scores: for tests.

    Raises:
        RuntimeError: on a CPU, if gradients are asked for; if there are too many different shapes.
    """
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, *([table.values] if table else [])))
    if wanted and q.device.type == "cpu":
        raise RuntimeError("fused attention has no backward pass on a CPU: use the chunked path, or torch.no_grad()")
    mask = block_mask(view, window) if mask is None else mask
    length, full = q.shape[2], mask.seq_lengths[0]
    modify = None
    if table is not None:
        modify = _score_mod(_longer(view.token_edu, full, -1), _filled_up(table), table.operation)
    with torch._dynamo.config.patch(_SHAPES):
        attend = _compiled() if compiled else flex_attention
        q, k, v = (_longer(x, full, 0.0, 2) for x in (q, k, v))
        out = attend(q, k, v, score_mod=modify, block_mask=mask, scale=1.0)
    return out[:, :, :length].masked_fill(~view.real[:, None, :, None], 0)
