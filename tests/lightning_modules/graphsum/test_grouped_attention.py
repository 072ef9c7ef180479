"""Attention within groups: against a loop over the formula, PyTorch's own attention and finite differences."""

import math

import pytest
import torch
from torch import Tensor

from lightning_modules.graphsum.decoder import PART_ELEMENTS, grouped_attention

B, N, T, L, n, d = 2, 3, 4, 3, 5, 2


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(9)


def drawn() -> tuple[Tensor, ...]:
    """Query, keys, values, mask and shares; every group shows its first key."""
    query, keys, values = (torch.randn(B, N, size, d) for size in (T, L * n, L * n))
    mask = torch.rand(B, L, n) < 0.6
    mask[..., 0] = True
    return query, keys, values, mask, torch.rand(B, N, T, L)


@pytest.mark.parametrize("room", [1, 130, 2**20])  # rows one at a time, two, all
def test_equals_a_loop_over_the_formula_and_its_gradient_finite_differences(room, monkeypatch):
    monkeypatch.setitem(PART_ELEMENTS, "cpu", room)
    query, keys, values, mask, shares = drawn()
    made = grouped_attention(query, keys, values, mask, shares)
    for b, h, t in ((b, h, t) for b in range(B) for h in range(N) for t in range(T)):
        mixed = torch.zeros(d)
        for j in range(L):
            seen = [j * n + i for i in range(n) if mask[b, j, i]]
            exps = [math.exp(float(query[b, h, t] @ keys[b, h, i]) / math.sqrt(d)) for i in seen]
            mixed += shares[b, h, t, j] * sum(e / sum(exps) * values[b, h, i] for e, i in zip(exps, seen))
        torch.testing.assert_close(made[b, h, t], mixed)
    inputs = [tensor.double().requires_grad_() for tensor in (query, keys, values, shares)]
    assert torch.autograd.gradcheck(lambda *x: grouped_attention(*x[:3], mask, x[3]), inputs)


def test_only_inputs_are_stored_for_the_backward_pass():
    query, keys, values, mask, shares = drawn()
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        grouped_attention(query.requires_grad_(), keys, values, mask, shares)
    assert max(tensor.numel() for tensor in kept) < B * N * T * L * n


def test_autocast_gives_gradients_in_the_dtype_of_the_inputs():
    query, keys, values, mask, shares = drawn()
    shares.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = [tensor.bfloat16().requires_grad_() for tensor in (query, keys, values)]
        made = grouped_attention(*half, mask, shares)
    made.float().sum().backward()
    assert [tensor.grad.dtype for tensor in half] == [torch.bfloat16] * 3 and shares.grad.dtype == torch.float32
    torch.testing.assert_close(made.float(), grouped_attention(query, keys, values, mask, shares), atol=0.05, rtol=0.05)
