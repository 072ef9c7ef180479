import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from lightning_modules.networks.adapters import add_low_rank_changes


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 4, bias=False)).double()


def test_changes_are_zero_at_first_and_then_a_product():
    plain, model = network(), network()
    add_low_rank_changes(model.double(), 2)
    model.double()
    x = torch.randn(3, 6, dtype=torch.float64)
    torch.testing.assert_close(model(x), plain(x))
    change = model[0].parametrizations.weight[0]
    nn.init.normal_(change.left)
    with torch.no_grad():
        plain[0].weight += change.left @ change.right
    torch.testing.assert_close(model(x), plain(x))


@pytest.mark.parametrize("alone", [True, False])
def test_weights_are_frozen_and_their_changes_trained_where_the_layer_is(alone):
    model = network()
    add_low_rank_changes(model, 2, alone)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    changes = {f"{layer}.parametrizations.weight.0.{side}" for layer in (0, 2) for side in ("left", "right")}
    assert trained == (changes if alone else changes | {"0.bias", "1.weight", "1.bias"})
    model = network()
    model[0].requires_grad_(False)
    add_low_rank_changes(model, 2, alone)
    assert not parametrize.is_parametrized(model[0]) and parametrize.is_parametrized(model[2])
    with pytest.raises(ValueError, match="at least 1, got 0"):
        add_low_rank_changes(model, 0)
