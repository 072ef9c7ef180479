"""Dropout by 16 bits an element against what it promises."""

import pytest
import torch

from lightning_modules.networks.dropout import Dropout, dropout, relu_dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_shares_and_scale(p):  # of one draw after the other of PyTorch's, and of NumPy's
    torch.manual_seed(0)
    assert (dropout(torch.ones(100, 501), p) == 0).float().mean().item() == pytest.approx(p, abs=0.01)
    out = dropout(torch.ones(400, 501), p)
    assert (out == 0).float().mean().item() == pytest.approx(p, abs=0.005)
    assert out[out != 0].unique().item() == pytest.approx(1 / (1 - p), rel=1e-3)
    assert out.mean().item() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("count", [100_000, 200_000])
def test_draws_of_neighbours_are_independent(count):
    torch.manual_seed(1)
    zero = (dropout(torch.ones(count), 0.3) == 0).float()
    for apart in (1, 2, 3, 4, 5):  # four share a draw
        assert torch.corrcoef(torch.stack([zero[apart:], zero[:-apart]]))[0, 1].abs() < 0.015


def test_the_gradient_is_what_the_output_was_multiplied_with():
    torch.manual_seed(2)
    x = torch.rand(7, 9, dtype=torch.float64).add(1).T.requires_grad_()  # not contiguous
    out = dropout(x, 0.4)
    out.sum().backward()
    torch.testing.assert_close(x.grad * x, out)


def test_the_same_seed_gives_the_same_zeros_and_another_others():
    for x in (torch.ones(3, 5, 7), torch.ones(3, 300, 700)):
        draws = []
        for seed in (3, 3, 4):
            torch.manual_seed(seed)
            draws.append((dropout(x, 0.5), dropout(x, 0.5)))
        assert draws[0][0].equal(draws[1][0]) and draws[0][1].equal(draws[1][1])
        assert not draws[0][0].equal(draws[2][0]) and not draws[0][0].equal(draws[0][1])


def test_evaluation_and_zero_change_nothing():
    x = torch.randn(4, 4)
    assert dropout(x, 0.0) is x and dropout(x, 0.5, training=False) is x and Dropout(0.5).eval()(x) is x
    assert dropout(torch.empty(0, 3), 0.5).shape == (0, 3)
    for make in (lambda: Dropout(1.0), lambda: dropout(x, -0.1), lambda: relu_dropout(x, 1.0)):
        with pytest.raises(ValueError, match="at least 0 and below 1"):
            make()


@pytest.mark.parametrize(("p", "training"), [(0.3, True), (0.3, False), (0.0, True)])
def test_relu_and_dropout_at_once_are_the_two_in_a_row(p, training):
    found = []
    for function in (relu_dropout, lambda x, *options: dropout(x.relu(), *options)):
        torch.manual_seed(5)
        x = torch.randn(9, 70, dtype=torch.float64).T.requires_grad_()  # not contiguous
        out = function(x, p, training)
        found.append((out, *torch.autograd.grad(out.square().sum(), x)))
    for one, other in zip(*found):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0)
