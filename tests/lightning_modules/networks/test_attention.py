
import pytest
import torch

from lightning_modules.networks.attention import PART_ELEMENTS, CoverageAttention, _AdditiveEnergy


@pytest.mark.parametrize("has_coverage", [True, False])
@pytest.mark.parametrize("summaries", [1, 3])
@pytest.mark.parametrize("room", [1, 24, 2**17])  # summaries one at a time, two (of three), all
def test_the_recomputed_gradient_equals_finite_differences(has_coverage, summaries, room, monkeypatch):
    monkeypatch.setitem(PART_ELEMENTS, "cpu", room)
    torch.manual_seed(1)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, requires_grad=True)  # noqa: E731
    coverage = draw(2, summaries, 4) if has_coverage else None
    inputs = (draw(2, 4, 3), draw(2, summaries, 3), coverage, draw(3), draw(3))
    assert torch.autograd.gradcheck(_AdditiveEnergy.apply, inputs)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-15), (torch.float32, 2e-7), (torch.bfloat16, 0)])
def test_tanh_equals_pytorchs_everywhere(dtype, error):
    inputs = torch.cat([torch.linspace(-12, 12, 4001), torch.tensor([0.0, 1e-6, -1e-4, 60, -1e30, torch.inf])])
    query, zero = inputs.to(dtype).view(1, 1, -1), torch.zeros(1, 1, len(inputs), dtype=dtype)
    layer = _AdditiveEnergy.hidden(zero, query, None, zero)
    torch.testing.assert_close(layer.flatten(), query.flatten().tanh(), rtol=0, atol=error)


def test_a_closed_gate_leaves_coverage_out_but_in_the_graph():
    torch.manual_seed(2)
    layer = CoverageAttention(3, 3, 3)
    projected, mask = layer.project(torch.randn(1, 4, 3)), torch.ones(1, 4, dtype=torch.bool)
    query = torch.randn(1, 1, 3)
    one, other = (layer(query, projected, mask, torch.rand(1, 1, 4), gate=0.0) for _ in range(2))
    torch.testing.assert_close(one, other)
    one[0, 0, 0].backward()
    assert layer.coverage.grad.eq(0).all() and layer.score.grad.ne(0).any()
