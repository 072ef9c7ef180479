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

    By default `scale` is d^-0.5. Without dropout, and on a GPU, PyTorch's function is called. With dropout on a CPU it
    keeps four tensors of the size of the weights for the backward pass, and draws its mask from a slow generator. Here
    the weights of some heads at a time are computed, and again in the backward pass, with the mask drawn from its seed.
    A training step of BertSum over MiniLM (8 documents of 500 tokens, one thread) is 1.46 times as fast in 0.38 of the
    memory (`experiments/results/attention_dropout.md`). The probability of dropout is rounded to a multiple of 1/65,536
    (0.1 becomes 0.100006), and the weights that stay are scaled accordingly.

    The mask is True where attention is allowed (bool), or a bias of scores (float), broadcastable to [B, N, T, S]. Each
    query must be allowed at least one key. `causal` excludes a mask.
    """
    is_learned = mask is not None and mask.requires_grad  # the backward pass below has no gradient of a bias
    if not 0 < dropout < 1 or query.device.type != "cpu" or is_learned or torch.compiler.is_compiling():
        return scaled_dot_product_attention(query, key, value, mask, dropout, causal, scale=scale)
    if causal:
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()[None, None]
    dtype = torch.promote_types(query.dtype, torch.float32)  # float32 for half precision
    rows = [tensor.to(dtype).flatten(0, 1).contiguous() for tensor in (query, key, value)]      # [B N, T or S, d]
    bias = _bias(mask, dtype, query.shape[:2])
    mixed = _DropoutAttention.apply(*rows, bias, dropout, query.shape[-1] ** -0.5 if scale is None else scale)
    return mixed.view(*query.shape[:-1], -1).to(query.dtype)


def _bias(mask: Tensor | None, dtype: torch.dtype, heads: torch.Size) -> Tensor:
    """Return a mask, broadcastable to [B, N, T, S], as a bias of scores, [B N or 1, T or 1, S or 1]; heads: (B, N)."""
    if mask is None:
        return torch.zeros(1, 1, 1, dtype=dtype)
    mask = mask[(None,) * (4 - mask.dim())]                                                  # four dimensions
    # dimensions made by `expand`, with stride 0, shrink to size 1 again, so that their copies take no memory
    mask = mask[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in mask.stride())]
    if mask.dtype == torch.bool:
        # the lowest number, not -inf, with which a query that is allowed no key would get NaN
        mask = torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)
    if mask.shape[:2].numel() > 1:  # the mask differs between texts or heads
        mask = mask.expand(*heads, -1, -1)
    return mask.to(dtype).flatten(0, 1)


class _DropoutAttention(torch.autograd.Function):
    """Attention of R = B N heads, [R, T, d] over [R, S, d]; products go to `out`, whose dtype autocast keeps."""

    @staticmethod
    def forward(ctx, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, dropout: float, scale: float) -> Tensor:
        ctx.dropout = dropout
        ctx.scale = scale
        ctx.seed = int(torch.empty((), dtype=torch.long).random_())  # to draw the same mask in the backward pass
        mixed = query.new_empty(*query.shape[:2], value.shape[-1])                               # [R, T, d]
        mask = Mask(dropout, ctx.seed)
        for part, scores, weights in _parts(query, key, 2):  # two buffers, which `_softmax` fills
            _softmax(query[part], key[part], _bias_of(part, bias), scale, scores, weights)
            weights *= mask.draw(scores)  # into the memory of the scores, which are not needed any more
            torch.bmm(weights, value[part], out=mixed[part])
        mixed *= mask.scale  # the factor of the weights that stay
        ctx.save_for_backward(query, key, value, bias, mixed)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        """Compute d score = P (G M c - sum_s G W), with weights P, mask M, its scale c, W = P M c and G = grad V^T."""
        query, key, value, bias, mixed = ctx.saved_tensors
        mask = Mask(ctx.dropout, ctx.seed)
        total = (grad * mixed).sum(-1, keepdim=True).mul_(ctx.scale)  # sum_s G W over keys s, as mixed = W V: [R, T, 1]
        grad = grad * mask.scale  # so that c is in G below; `ctx.scale` is that of scores, with respect to Q K^T
        query_grad, key_grad, value_grad = (torch.empty_like(tensor) for tensor in (query, key, value))
        for part, scores, weights, score_grad in _parts(query, key, 3):  # three buffers, filled below
            _softmax(query[part], key[part], _bias_of(part, bias), ctx.scale, scores, weights)   # P
            undropped = mask.draw(scores)                                                        # M
            torch.bmm(grad[part] * ctx.scale, value[part].mT, out=score_grad)                    # G c, scaled
            score_grad.mul_(undropped).sub_(total[part]).mul_(weights)                           # d score, scaled
            weights *= undropped
            torch.bmm(score_grad, key[part], out=query_grad[part])
            torch.bmm(score_grad.mT, query[part], out=key_grad[part])
            torch.bmm(weights.mT, grad[part], out=value_grad[part])
        return query_grad, key_grad, value_grad, None, None, None


def _softmax(query: Tensor, key: Tensor, bias: Tensor, scale: float, scores: Tensor, out: Tensor) -> None:
    """Write the attention weights of some heads to `out`, and their scores to `scores`, [r, T, S] both."""
    torch.baddbmm(bias, query, key.mT, alpha=scale, out=scores)
    torch.softmax(scores, -1, out=out)


def _bias_of(part: slice, bias: Tensor) -> Tensor:
    return bias[part] if len(bias) > 1 else bias


def _parts(query: Tensor, key: Tensor, buffers: int):
    """Yield slices of r of the R heads of a query [R, T, d], each with `buffers` tensors [r, T, S], reused for all."""
    shape = (query.shape[1], key.shape[1])
    heads = max(1, PART_ELEMENTS // max(1, shape[0] * shape[1]))  # r; T or S is 0 for a text without tokens
    memory = query.new_empty(buffers, min(heads, len(query)), *shape)
    for start in range(0, len(query), heads):
        part = slice(start, min(start + heads, len(query)))
        yield part, *memory[:, : part.stop - start]
