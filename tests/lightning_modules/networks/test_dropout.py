import pytest
import torch

from lightning_modules.networks.dropout import Dropout


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_elements_are_dropped_or_scaled_in_output_and_gradient(probability):
    torch.manual_seed(0)
    inputs = torch.randn(3, 5, 7, dtype=torch.float64, requires_grad=True)
    output = Dropout(probability)(inputs)
    factor = output / inputs
    stays = factor != 0
    assert stays.any() and not stays.all()
    rounded = round(probability * 2**16) / 2**16
    torch.testing.assert_close(factor[stays], torch.full_like(factor[stays], 1 / (1 - rounded)))
    upstream = torch.randn_like(inputs)
    (gradient,) = torch.autograd.grad(output, inputs, upstream)
    torch.testing.assert_close(gradient, upstream * factor.detach())
    assert Dropout(probability).eval()(inputs).equal(inputs) and Dropout(0.0)(inputs).equal(inputs)
    assert Dropout(1.0)(inputs).eq(0).all()


@pytest.mark.parametrize("probability", [0.02, 0.3, 0.97])
def test_drop_rates_and_correlations_of_neighbours(probability):
    """Four neighbours come from one random number; means of 100,000 draws stay within five standard deviations."""
    torch.manual_seed(1)
    dropped = (Dropout(probability)(torch.ones(100_000, 4)) == 0).double()
    deviation = (probability * (1 - probability) / len(dropped)) ** 0.5
    assert (dropped.mean(0) - probability).abs().max() < 5 * deviation
    assert (torch.corrcoef(dropped.T) - torch.eye(4)).abs().max() < 5 / len(dropped) ** 0.5
