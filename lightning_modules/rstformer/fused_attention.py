"""Sliding-window and global attention in one kernel (`flex_attention`), which applies the table to each score.

The backward pass needs CUDA; on a CPU it is for inference. There is no dropout.

The kernel is compiled once for each shape, so lengths, numbers of EDUs and half-widths are padded to a few sizes
(`padded_size`). The block mask excludes blocks of padding, which therefore cost nothing.
"""

import math
from functools import cache, lru_cache

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from lightning_modules.rstformer.injection import HeadTable, Operation, View, neutral

BLOCK = 128  # tokens to a side of a block of the kernel
MIN_WIDTH = 16  # dimensions of a head that the kernel needs on CUDA
_MIN_EDUS, _MIN_HALF_WIDTH = 64, 8  # smallest padded sizes
# Maximal number of compiled shapes. Beyond it, PyTorch would silently compute all T^2 scores; we raise an error.
_SHAPES = {"recompile_limit": 64, "fail_on_recompile_limit_hit": True}


def padded_size(size: int, min_step: int) -> int:
    """Round a size up to a multiple of `min_step`, by at most a quarter, with four sizes between powers of two."""
    step = max(min_step, 2 ** max(0, (size - 1).bit_length() - 3))
    return -(-size // step) * step


@lru_cache(maxsize=32)
def _window_blocks(length: int, window: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return which pairs of query and key blocks are partially and fully inside the window, two of bool [N, N]."""
    block = torch.arange(length // BLOCK, device=device)
    apart = (block[:, None] - block).abs() * BLOCK                                    # between their first tokens
    return apart - (BLOCK - 1) <= window, apart + BLOCK - 1 <= window


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return number and indices of True blocks in each row: bool [B, N, N] -> int32 [B, 1, N], [B, 1, N, N]."""
    order = blocks.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32).unsqueeze(1), order.to(torch.int32).unsqueeze(1)


def block_mask(view: View, window: int) -> BlockMask:
    """Return the block mask of the kernel.

    The blocks of the window are cached by length and window; padding and global tokens are added by blocks, so that no
    tensor of size [T, T] is needed.

    Args:
        view: masks and EDUs of the batch.
        window: number of tokens to each side.

    Returns:
        The mask for the `padded_size` of the batch.
    """
    length = padded_size(view.token_mask.shape[1], BLOCK)
    token_mask, is_global = _pad_end(view.token_mask, length, False), _pad_end(view.is_global, length, False)
    overlapping, inside = _window_blocks(length, window, token_mask.device)
    present, global_blocks = (flags.unflatten(1, (-1, BLOCK)) for flags in (token_mask, is_global))
    keys = present.any(-1)[:, None] & (overlapping | global_blocks.any(-1)[:, None])
    attended = present.any(-1)[:, :, None] & keys                                     # [B, N, N]
    full = attended & inside & present.all(-1)[:, None]  # these skip the mask

    def visible(b, h, i, j):
        return token_mask[b, j] & (((i - j).abs() <= window) | is_global[b, j])

    return BlockMask.from_kv_blocks(*_listed(attended & ~full), *_listed(full), BLOCK_SIZE=BLOCK, mask_mod=visible)


def _pad_end(x: Tensor, length: int, value: float | bool, dim: int = 1) -> Tensor:
    """Pad the end of one dimension of a tensor."""
    padding = (0, 0) * (x.dim() - 1 - dim) + (0, length - x.shape[dim])
    return torch.nn.functional.pad(x, padding, value=value)


def _pad_table(table: HeadTable) -> Tensor:
    """Pad the values of a table to more EDUs and a wider band: [B, H, E, 2b + 1] -> [B, H, E', 2b' + 1]."""
    values, value = table.values, neutral(table.operation)
    half, edus = values.shape[-1] // 2, values.shape[2]
    side, extra_edus = padded_size(max(half, 1), _MIN_HALF_WIDTH) - half, padded_size(max(edus, 1), _MIN_EDUS) - edus
    # nan would get through where pairs beyond the band, which windows do not reach, are looked up
    return torch.nn.functional.pad(values, (side, side, 0, extra_edus), value=0.0 if math.isnan(value) else value)


def _score_mod(token_edu: Tensor, values: Tensor, operation: Operation):
    """Apply the operation of the table to one score, see `HeadTable`."""
    width, value = values.shape[-1], neutral(operation)

    def modify(score, b, h, i, j):
        query_edu, key_edu = token_edu[b, i], token_edu[b, j]
        column = key_edu - query_edu + width // 2
        in_band = (query_edu >= 0) & (key_edu >= 0) & (column >= 0) & (column < width)
        looked_up = values[b, h, query_edu.clamp(min=0), column.clamp(0, width - 1)]
        if operation == "replace":
            return torch.where(in_band, looked_up.to(score.dtype), score)
        looked_up = torch.where(in_band, looked_up, value).to(score.dtype)
        return score * looked_up if operation == "scale" else score + looked_up

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
    """Return the result of `chunked_attention.chunked_attention`, without dropout, by a fused kernel.

    Args:
        q, k, v, view, table, window: as in `chunked_attention`.
        mask: `block_mask` of the view and window; computed if None. Layers can share it.
        compiled: False for the slow implementation of PyTorch with T^2 scores, for tests.

    Raises:
        RuntimeError: if gradients are required on a CPU, or there are too many shapes.
    """
    needs_grad = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, *([table.values] if table else [])))
    if needs_grad and q.device.type == "cpu":
        raise RuntimeError("fused attention has no backward pass on a CPU: use the chunked path, or torch.no_grad()")
    mask = block_mask(view, window) if mask is None else mask
    length, full = q.shape[2], mask.seq_lengths[0]
    modify = None
    if table is not None:
        modify = _score_mod(_pad_end(view.token_edu, full, -1), _pad_table(table), table.operation)
    with torch._dynamo.config.patch(_SHAPES):
        attend = _compiled() if compiled else flex_attention
        q, k, v = (_pad_end(x, full, 0.0, 2) for x in (q, k, v))
        out = attend(q, k, v, score_mod=modify, block_mask=mask, scale=1.0)
    return out[:, :, :length].masked_fill(~view.token_mask[:, None, :, None], 0)
