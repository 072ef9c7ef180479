"""Sliding-window and global attention in one kernel (`flex_attention`), which applies the table to each score.

The backward pass needs CUDA; on a CPU it is for inference. There is no dropout.

The kernel is compiled once for each shape, so lengths, numbers of EDUs and half-widths are padded to a few sizes
(`padded_size`). The block mask excludes blocks of padding, which therefore cost nothing.
"""

from functools import cache

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from lightning_modules.rstformer.injection import HeadTable, Operation, View, neutral

BLOCK = 128  # the kernel computes blocks of this number of queries times this number of keys
MIN_WIDTH = 16  # dimensions of a head that the kernel needs on CUDA
_MIN_EDUS = 64  # smallest padded number of EDUs of a table
_MIN_HALF_WIDTH = 8  # smallest padded number of EDUs to each side
# Maximum number of compiled shapes. Beyond it, PyTorch would silently compute all T^2 scores; we raise an error.
_COMPILE_LIMIT = {"recompile_limit": 64, "fail_on_recompile_limit_hit": True}


def padded_size(size: int, min_step: int) -> int:
    """Round a size up to a multiple of the larger of `min_step` and an eighth of the next power of two (600 to 640)."""
    exponent = max(0, (size - 1).bit_length() - 3)  # 2**exponent: an eighth of the next power of two, at least 1
    step = max(min_step, 2**exponent)  # four sizes between two powers of two, so that few shapes are compiled
    return -(-size // step) * step  # rounded up


def _count_and_indices(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the number and the indices of True blocks by row: bool [B, N, N] -> int32 [B, 1, N], [B, 1, N, N]."""
    order = blocks.to(torch.int8).argsort(dim=-1, descending=True, stable=True)  # first True blocks, in ascending order
    return blocks.sum(-1, dtype=torch.int32).unsqueeze(1), order.to(torch.int32).unsqueeze(1)


def block_mask(view: View, window: int) -> BlockMask:
    """Return which pairs of N blocks of tokens the kernel computes, and its mask in them, without a [T, T] tensor."""
    length = padded_size(view.token_mask.shape[1], BLOCK)
    token_mask = _pad_end(view.token_mask, length, False)
    is_global = _pad_end(view.is_global, length, False)
    block = torch.arange(length // BLOCK, device=token_mask.device)
    distance = (block[:, None] - block).abs() * BLOCK  # between the first tokens of two blocks, [N, N]
    # the nearest tokens of two blocks are BLOCK - 1 closer than the first ones, the farthest ones BLOCK - 1 farther
    overlapping = distance - (BLOCK - 1) <= window  # partly in the window
    inside = distance + BLOCK - 1 <= window  # fully in the window
    in_blocks = token_mask.unflatten(1, (-1, BLOCK))  # True at tokens                # [B, N, BLOCK]
    global_in_blocks = is_global.unflatten(1, (-1, BLOCK))
    has_tokens = in_blocks.any(-1)                                                    # [B, N]
    has_keys = has_tokens[:, None] & (overlapping | global_in_blocks.any(-1)[:, None])  # by query block, [B, N, N]
    is_computed = has_tokens[:, :, None] & has_keys                                   # [B, N, N]
    is_full = is_computed & inside & in_blocks.all(-1)[:, None]  # all pairs are visible: the mask is not evaluated

    def visible(b, h, i, j):  # document, head, query, key; outputs of global queries are replaced later
        return token_mask[b, j] & (((i - j).abs() <= window) | is_global[b, j])

    blocks = (*_count_and_indices(is_computed & ~is_full), *_count_and_indices(is_full))
    return BlockMask.from_kv_blocks(*blocks, BLOCK_SIZE=BLOCK, mask_mod=visible)


def _pad_end(x: Tensor, length: int, value: float | bool, dim: int = 1) -> Tensor:
    """Pad the end of dimension `dim` of a tensor to `length` with a value."""
    padding = (0, 0) * (x.dim() - 1 - dim) + (0, length - x.shape[dim])  # pairs for dimensions from the last to `dim`
    return torch.nn.functional.pad(x, padding, value=value)


def _pad_table(values: Tensor, neutral_value: float) -> Tensor:
    """Pad a table to one of few shapes by a value that keeps scores, [B, H, E, 2b + 1] -> [B, H, E', 2b' + 1].

    E' > E EDUs and b' > b: `_score_mod` looks up pairs outside the table, or with a token in no EDU, in the padding.
    """
    edus, half = values.shape[2], values.shape[-1] // 2  # E, b
    extra_edus = padded_size(edus + 1, _MIN_EDUS) - edus  # + 1, so that there is always padding
    extra_half = padded_size(half + 1, _MIN_HALF_WIDTH) - half
    return torch.nn.functional.pad(values, (extra_half, extra_half, 0, extra_edus), value=neutral_value)


def _score_mod(token_edu: Tensor, values: Tensor, operation: Operation):
    """Return the function that changes one score by a table, [B, H, E', 2b' + 1] as padded by `_pad_table`."""
    num_rows, width = values.shape[-2:]
    no_edu = token_edu < 0
    # tokens in no EDU lead to padding of the table: queries to the last row, keys, through `clamp`, to the last column;
    # int32, since the kernel computes an index for each score
    query_row = token_edu.masked_fill(no_edu, num_rows - 1).int()                     # [B, T]
    key_edu = token_edu.masked_fill(no_edu, num_rows + width).int()                   # [B, T]

    def modify(score, b, h, i, j):  # document, head, query, key
        row = query_row[b, i]
        column = (key_edu[b, j] - row + width // 2).clamp(0, width - 1)  # the middle is distance 0
        looked_up = values[b, h, row, column].to(score.dtype)
        if operation == "replace":  # the padding is NaN, which keeps the score
            return torch.where(looked_up.isnan(), score, looked_up)
        return score * looked_up if operation == "scale" else score + looked_up

    return modify


@cache  # one compiled function for all layers
def _compiled():
    return torch.compile(flex_attention, dynamic=False)


# Sizes of tiles with a table: the default tiles keep too many looked-up values, which do not fit into the shared memory
# of an H200 (with the injection `product`) or are half as fast (`log_bias`).
_TILES = {"fwd_BLOCK_M": 64, "fwd_BLOCK_N": 128, "fwd_num_stages": 1, "bwd_num_stages": 1}
_LSE = AuxRequest(lse=True)  # also return log sum exp of each query's scores


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask, modify, compiled: bool, **arguments):
    """Run the kernel; `modify` changes each score unless it is None; `arguments` are others of `flex_attention`."""
    attend = _compiled() if compiled else flex_attention
    options = _TILES if modify is not None and q.is_cuda else None  # None for the default tiles
    with torch._dynamo.config.patch(_COMPILE_LIMIT):  # scale=1.0: q is scaled already
        return attend(q, k, v, score_mod=modify, block_mask=mask, scale=1.0, kernel_options=options, **arguments)


class FactorGradient(torch.autograd.Function):
    """Deterministic gradient of beta, the learned factor of a table, by a second forward pass without atomic additions.

    The scores are S_ij + beta_h s_ij, the latter from the table. With attention weights P and o_i = sum_j P_ij v_j,

        d o_i / d beta_h = sum_j P_ij s_ij (v_j - o_i).

    As sum_j P_ij (v_j - o_i) = 0, a constant added to all s_ij keeps this sum, so that w = sign * s + constant >= 0
    can replace sign * s (`LearnedFactor`; sign is 1 or -1). Attention with log w_ij added to its scores has the outputs
    o'_i = sum_j P_ij w_ij v_j / r_i with r_i = sum_j P_ij w_ij, the ratio of the two softmax denominators. Hence
    d o_i / d beta_h = sign * r_i (o'_i - o_i).
    """

    @staticmethod
    def forward(ctx, out, beta, lse, q, k, v, values, log_weights, token_edu, mask, sign, compiled):
        """Return `out` unchanged; keep the inputs of its computation, and lse_i = log sum_j exp(score_ij)."""
        ctx.save_for_backward(out, lse, q, k, v, values, log_weights, token_edu)
        ctx.mask, ctx.sign, ctx.compiled = mask, sign, compiled
        return out.view_as(out)  # autograd needs another tensor than the argument

    @staticmethod
    def backward(ctx, grad):
        """Return the gradients of `out` and beta (equation: see the class), and None for the other arguments."""
        out, lse, q, k, v, values, log_weights, token_edu = ctx.saved_tensors
        with torch.no_grad():
            modify = _score_mod(token_edu, values + log_weights, "shift")  # beta belongs to a shift; add log w too
            weighted_out, aux = _attend(q, k, v, ctx.mask, modify, ctx.compiled, return_aux=_LSE)
            # r_i; queries at padding see no key, so their denominator is 0 and the ratio undefined
            ratio = (aux.lse - lse).exp().nan_to_num(0.0, 0.0, 0.0).unsqueeze(-1)         # [B, H, T, 1]
            dtype = ratio.dtype
            slopes = ctx.sign * ratio * (weighted_out.to(dtype) - out.to(dtype))          # [B, H, T, D]
            grad_beta = (grad.to(dtype) * slopes).sum((0, 2, 3))                          # [H]
        return grad, grad_beta, *[None] * 10  # for the arguments after beta


def fused_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    view: View,
    table: HeadTable | None,
    window: int,
    compiled: bool = True,
) -> Tensor:
    """Return the result of `chunked_attention.chunked_attention`, without dropout; q, k, v are [B, H, T, D].

    If `compiled` is False (for tests), all T^2 scores are computed. Raises a `RuntimeError` if gradients of q, k, v or
    of the table's entries are required on a CPU, or more shapes have been compiled than `_COMPILE_LIMIT` allows.
    """
    factor = None if table is None else table.factor  # set if only the factor beta of the table is learned
    entries = [table.values] if table is not None and factor is None else []
    if torch.is_grad_enabled() and q.device.type == "cpu" and any(x.requires_grad for x in (q, k, v, *entries)):
        raise RuntimeError("fused attention has no backward pass on a CPU: use the chunked path, or torch.no_grad()")
    if window not in view.block_masks:  # computed once, as layers share the view
        view.block_masks[window] = block_mask(view, window)
    mask = view.block_masks[window]
    length = q.shape[2]
    padded_length = mask.seq_lengths[0]
    q, k, v = (_pad_end(x, padded_length, 0.0, 2) for x in (q, k, v))
    token_edu = _pad_end(view.token_edu, padded_length, -1)
    modify = None  # plain attention
    if table is not None:
        # the gradient of a factor is computed by `FactorGradient`, so that the kernel needs none of the table
        values = table.values if factor is None else table.values.detach()
        values = _pad_table(values, neutral(table.operation))
        modify = _score_mod(token_edu, values, table.operation)
    if factor is not None and torch.is_grad_enabled() and factor.beta.requires_grad:
        out, aux = _attend(q, k, v, mask, modify, compiled, return_aux=_LSE)
        log_weights = _pad_table(factor.weights, factor.neutral).clamp(min=0).log()  # rounding may give w < 0
        inputs = (x.detach() for x in (aux.lse, q, k, v, values, log_weights, token_edu))  # for the gradient of beta
        out = FactorGradient.apply(out, factor.beta, *inputs, mask, factor.sign, compiled)
    else:
        out = _attend(q, k, v, mask, modify, compiled)
    return out[:, :, :length].masked_fill(~view.token_mask[:, None, :, None], 0)
