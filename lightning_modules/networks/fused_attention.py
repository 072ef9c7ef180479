"""Sliding-window and global attention in one kernel (`flex_attention`): the table is looked up while scores are made.

Its backward pass needs CUDA; on a CPU it is for inference. It has no dropout.
"""

from functools import cache, lru_cache

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from lightning_modules.networks.discourse_attention import HeadTable, View, neutral

BLOCK = 128  # tokens to a side of a block of the kernel


@lru_cache(maxsize=32)
def _window_blocks(length: int, window: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Which blocks of keys a block of queries reaches in part, and which with every pair: two of bool [N, N]."""
    count = -(-length // BLOCK)
    apart = (torch.arange(count)[:, None] - torch.arange(count)).abs() * BLOCK        # of their first tokens
    reached, whole = apart - (BLOCK - 1) <= window, apart + BLOCK - 1 <= window
    return reached.to(device), whole.to(device)


def _blocks(flags: Tensor, length: int, padding: bool) -> Tensor:
    """Flags of tokens by blocks, what follows the last token being `padding`: bool [B, T] -> [B, N, BLOCK]."""
    return torch.nn.functional.pad(flags, (0, -length % BLOCK), value=padding).unflatten(1, (-1, BLOCK))


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
    """
    real, is_global = view.real, view.is_global
    length = real.shape[1]
    reached, whole = _window_blocks(length, window, real.device)
    present = _blocks(real, length, False)
    keys = present.any(-1)[:, None] & (reached | _blocks(is_global, length, False).any(-1)[:, None])
    seen = present.any(-1)[:, :, None] & keys                                         # [B, N, N]
    # nothing but whole blocks may skip the mask; the kernel knows where the last token is
    full = seen & whole & _blocks(real, length, True).all(-1)[:, None]

    def visible(b, h, i, j):
        return real[b, j] & (((i - j).abs() <= window) | is_global[b, j])

    return BlockMask.from_kv_blocks(
        *_listed(seen & ~full), *_listed(full), BLOCK_SIZE=BLOCK, mask_mod=visible, seq_lengths=(length, length)
    )


def _score_mod(token_edu: Tensor, table: HeadTable):
    """The table's operation on one score, see `HeadTable`."""
    values, operation = table
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
    """The same as `window_attention.chunked_attention`, without dropout.

    Args:
        q: queries, divided by sqrt(D), [B, H, T, D].
        k: keys, [B, H, T, D].
        v: values, [B, H, T, D].
        view: who sees whom.
        table: of discourse, None for plain attention.
        window: tokens to each side.
        mask: `block_mask` of the view and window, where several layers share it.
        compiled: False for PyTorch's own slow reading of the same, which keeps all T^2 scores: for tests.

    Returns:
        [B, H, T, D]; 0 at padding. Rows of global tokens are those that they would have as usual tokens.

    Raises:
        RuntimeError: on a CPU, if gradients are asked for.
    """
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, *([table.values] if table else [])))
    if wanted and q.device.type == "cpu":
        raise RuntimeError("fused attention has no backward pass on a CPU: use the chunked path, or torch.no_grad()")
    mask = block_mask(view, window) if mask is None else mask
    modify = None if table is None else _score_mod(view.token_edu, table)
    attend = _compiled() if compiled else flex_attention
    out = attend(q, k, v, score_mod=modify, block_mask=mask, scale=1.0)
    return out.masked_fill(~view.real[:, None, :, None], 0)
