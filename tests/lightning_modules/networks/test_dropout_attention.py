import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from lightning_modules.networks import dropout_attention
from lightning_modules.networks.dropout_attention import attention

B, N, T, S, D = 2, 3, 4, 6, 5
KEYS = torch.arange(S) < torch.tensor([S, 4])[:, None]
MASKS = {
    "none": None,
    "keys": KEYS[:, None, None],
    "expanded": KEYS[:, None, None].expand(-1, 1, T, -1),
    "pairs": torch.rand(T, S, generator=torch.Generator().manual_seed(1)) < 0.8,
    "bias": torch.randn(B, N, T, S, generator=torch.Generator().manual_seed(2), dtype=torch.double),
}
MASKS["pairs"][:, 0] = True


@pytest.fixture(autouse=True, params=[1, 3 * T * S, 2**18], ids=["a head at a time", "three heads", "all heads"])
def parts(request, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(dropout_attention, "PART_ELEMENTS", request.param)


def inputs(keys: int = S) -> list[torch.Tensor]:
    """Query, key and value as views of the outputs of linear layers."""
    shapes = ((B, T, N, D), (B, keys, N, D), (B, keys, N, D))
    return [torch.randn(shape, dtype=torch.double).transpose(1, 2).requires_grad_() for shape in shapes]


def passes(function, tensors: list[torch.Tensor], *arguments, **options) -> list[torch.Tensor]:
    torch.manual_seed(7)
    mixed = function(*tensors, *arguments, **options)
    weights = (torch.arange(mixed.numel()) % 3 - 0.5).to(mixed.dtype).view_as(mixed)
    return [mixed, *torch.autograd.grad((mixed * weights).sum(), tensors)]


@pytest.mark.parametrize("name", [*MASKS, "causal"])
def test_a_vanishing_dropout_equals_pytorch_s_attention(name):
    causal = name == "causal"
    tensors, scale = inputs(T if causal else S), 0.3 if causal else None
    ours, theirs = (
        passes(function, tensors, MASKS.get(name), dropout, causal, scale=scale)
        for function, dropout in ((attention, 1e-9), (scaled_dot_product_attention, 0.0))
    )
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", ["none", "keys", "bias"])
def test_passes_with_dropout_equal_autograd_with_the_same_mask(name):
    tensors, mask, p = inputs(), MASKS[name], 0.5  # a multiple of 1/65,536
    torch.manual_seed(7)
    with torch.no_grad():  # with the identity as values, the output is the weights
        weights = attention(*tensors[:2], torch.eye(S, dtype=torch.double).expand(B, N, S, S), mask, p)
    allowed = torch.ones(B, N, T, S, dtype=torch.bool)
    if name == "keys":
        allowed = mask.expand_as(allowed)
    undropped = weights > 0
    assert (undropped | ~allowed).any() and (~undropped & allowed).any()

    def plain(query, key, value):
        scores = query @ key.mT / math.sqrt(D)
        scores = scores + mask if name == "bias" else scores.masked_fill(~allowed, float("-inf"))
        return (scores.softmax(-1) * undropped / (1 - p)) @ value

    torch.testing.assert_close(passes(attention, tensors, mask, p), passes(plain, tensors))


def test_half_precision_is_computed_in_float32_and_a_query_without_keys_has_no_nan():
    tensors = [tensor.detach().bfloat16().requires_grad_() for tensor in inputs()]
    with torch.autocast("cpu", torch.bfloat16):
        ours = passes(attention, tensors, MASKS["keys"], 0.5)
    exact = passes(attention, [tensor.detach().float().requires_grad_() for tensor in tensors], MASKS["keys"], 0.5)
    assert {tensor.dtype for tensor in ours} == {torch.bfloat16}
    torch.testing.assert_close(ours, [tensor.bfloat16() for tensor in exact])
    mask, bias = MASKS["keys"].clone(), MASKS["bias"].clone().requires_grad_()
    mask[1] = False
    assert all(tensor.isfinite().all() for tensor in passes(attention, inputs(), mask, 0.5))
    attention(*inputs(), bias, 0.5).sum().backward()
    assert bias.grad.abs().sum() > 0  # a learned bias
