"""Attention with dropout on its weights for CPUs, which keeps no tensor of the size of the weights."""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from lightning_modules.networks.dropout import Mask

PART_ELEMENTS = 2**18  # weights computed at once: 1 MB stays in a CPU's caches


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Return dropout(softmax(Q K^T scale + mask)) V, like PyTorch's `scaled_dot_product_attention`, [B, N, T, d].

    Queries are [B, N, T, d], keys and values [B, N, S, d], for B texts and N heads; `scale` is d^-0.5 by default.
    Without dropout, and on a GPU, PyTorch's function is called. With dropout on a CPU, that function keeps four tensors
    of the size of the weights for the backward pass, and draws its mask from a slow generator. Here the weights are
    computed for some heads at a time, and again in the backward pass, where the same seed gives the same mask. A
    training step of BertSum over MiniLM is 1.46 times as fast in 0.38 of the memory
    (`experiments/results/attention_dropout.md`). The probability of dropout is rounded to a multiple of 1/65,536.

    The mask is True where attention is allowed (bool), or a bias added to scores (float), broadcastable to
    [B, N, T, S]. Each query must be allowed at least one key. `causal` excludes a mask.
    """
    is_learned = mask is not None and mask.requires_grad  # the backward pass below has no gradient of a bias
    if not 0 < dropout < 1 or query.device.type != "cpu" or is_learned or torch.compiler.is_compiling():
        return scaled_dot_product_attention(query, key, value, mask, dropout, causal, scale=scale)
    if causal:
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()[None, None]  # [1, 1, T, S]
    dtype = torch.promote_types(query.dtype, torch.float32)  # float32 for half precision
    by_head = [tensor.to(dtype).flatten(0, 1).contiguous() for tensor in (query, key, value)]   # [B N, T or S, d]
    bias = _as_bias(mask, dtype, query.shape[:2])
    attended = _DropoutAttention.apply(*by_head, bias, dropout, query.shape[-1] ** -0.5 if scale is None else scale)
    return attended.view(*query.shape[:-1], -1).to(query.dtype)


def _as_bias(mask: Tensor | None, dtype: torch.dtype, heads: torch.Size) -> Tensor:
    """Return a mask, broadcastable to [B, N, T, S], as a bias of scores [B N or 1, T or 1, S or 1]; heads: (B, N)."""
    if mask is None:
        return torch.zeros(1, 1, 1, dtype=dtype)
    mask = mask[(None,) * (4 - mask.dim())]  # new dimensions of size 1 in front, up to four dimensions
    # dimensions made by `expand`, with stride 0, shrink to size 1 again, so that their copies take no memory
    mask = mask[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in mask.stride())]
    if mask.dtype == torch.bool:
        # the lowest number, not -inf: with -inf, a query that is allowed no key would get NaN
        mask = torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)
    if mask.shape[:2].numel() > 1:  # the mask differs between texts or heads
        mask = mask.expand(*heads, -1, -1)
    return mask.to(dtype).flatten(0, 1)


class _DropoutAttention(torch.autograd.Function):
    """`attention` over R = B N heads: queries [R, T, d], keys and values [R, S, d], bias [R or 1, T or 1, S or 1]."""

    @staticmethod
    def forward(ctx, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, dropout: float, scale: float) -> Tensor:
        ctx.dropout = dropout
        ctx.scale = scale
        ctx.seed = int(torch.empty((), dtype=torch.long).random_())  # to draw the same mask in the backward pass
        attended = query.new_empty(*query.shape[:2], value.shape[-1])                            # [R, T, d]
        mask = Mask(dropout, ctx.seed)
        for heads, scores, weights in _heads_with_buffers(query, key, 2):  # slices, and two buffers [r, T, S] each
            _softmax(query[heads], key[heads], _bias_of(heads, bias), scale, scores, weights)  # fills the buffers
            weights *= mask.draw(scores)  # drawn into the memory of the scores, which are not needed any more
            torch.bmm(weights, value[heads], out=attended[heads])  # autocast does not change the dtype of `out`
        attended *= mask.scale  # the factor of the weights that stay
        ctx.save_for_backward(query, key, value, bias, attended)
        return attended

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        """Return the gradients of query, key and value; that of scores is P (G M c - sum_s G W), elementwise.

        P are attention weights, M the dropout mask, c its scale, W = P M c, G = grad V^T; sum_s is over keys s.
        """
        query, key, value, bias, attended = ctx.saved_tensors
        mask = Mask(ctx.dropout, ctx.seed)
        total = (grad * attended).sum(-1, keepdim=True).mul_(ctx.scale)  # sum_s G W, [R, T, 1], as W V = `attended`
        grad = grad * mask.scale  # puts c into G below; `ctx.scale` is another factor, of Q K^T
        query_grad, key_grad, value_grad = (torch.empty_like(tensor) for tensor in (query, key, value))
        for heads, scores, weights, score_grad in _heads_with_buffers(query, key, 3):  # buffers, filled below
            _softmax(query[heads], key[heads], _bias_of(heads, bias), ctx.scale, scores, weights)  # P
            undropped = mask.draw(scores)                                                        # M
            torch.bmm(grad[heads] * ctx.scale, value[heads].mT, out=score_grad)                  # G c times ctx.scale
            score_grad.mul_(undropped).sub_(total[heads]).mul_(weights)                      # d score times ctx.scale
            weights *= undropped                                                                 # W / c
            torch.bmm(score_grad, key[heads], out=query_grad[heads])
            torch.bmm(score_grad.mT, query[heads], out=key_grad[heads])
            torch.bmm(weights.mT, grad[heads], out=value_grad[heads])
        return query_grad, key_grad, value_grad, None, None, None  # none for bias, dropout and scale


def _softmax(query: Tensor, key: Tensor, bias: Tensor, scale: float, scores: Tensor, out: Tensor) -> None:
    """Write scores Q K^T scale + bias of r heads to `scores`, and softmax(scores) to `out`, [r, T, S] each."""
    torch.baddbmm(bias, query, key.mT, alpha=scale, out=scores)
    torch.softmax(scores, -1, out=out)


def _bias_of(heads: slice, bias: Tensor) -> Tensor:
    return bias[heads] if len(bias) > 1 else bias  # a single one is the bias of all heads


def _heads_with_buffers(query: Tensor, key: Tensor, buffers: int):
    """Yield slices of r of the R heads of a query [R, T, d], and `buffers` tensors [r, T, S] (memory is reused)."""
    shape = (query.shape[1], key.shape[1])  # (T, S)
    heads = max(1, PART_ELEMENTS // max(1, shape[0] * shape[1]))  # r; T or S is 0 for a text without tokens
    memory = query.new_empty(buffers, min(heads, len(query)), *shape)
    for start in range(0, len(query), heads):
        stop = min(start + heads, len(query))
        yield slice(start, stop), *memory[:, : stop - start]
