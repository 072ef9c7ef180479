import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from lightning_modules.networks.low_rank import add_low_rank_changes, copy_to_low_rank


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
def test_weights_are_frozen_and_their_changes_trained(alone):
    model = network()
    add_low_rank_changes(model, 2, alone)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    changes = {f"{layer}.parametrizations.weight.0.{side}" for layer in (0, 2) for side in ("left", "right")}
    assert trained == (changes if alone else changes | {"0.bias", "1.weight", "1.bias"})


def test_a_layer_that_is_not_trained_has_no_change():
    model = network()
    model[0].requires_grad_(False)
    add_low_rank_changes(model, 2)
    assert not parametrize.is_parametrized(model[0]) and parametrize.is_parametrized(model[2])
    with pytest.raises(ValueError, match="at least 1, got 0"):
        add_low_rank_changes(model, 0)


@torch.no_grad()
@pytest.mark.parametrize("rank", [1, 3, 6])
def test_copies_are_the_nearest_of_their_rank(rank):
    original, tuned = network(), network()
    for parameter in tuned.parameters():
        parameter += torch.randn_like(parameter)
    target = copy.deepcopy(original)
    add_low_rank_changes(target, rank, alone=False)
    target.double()
    fraction = copy_to_low_rank(tuned, target)
    retained = total = 0.0
    for layer in (0, 2):
        before, after = (model[layer].weight.numpy() for model in (original, tuned))
        left, sizes, right = np.linalg.svd(after - before, full_matrices=False)
        nearest = before + left[:, :rank] @ np.diag(sizes[:rank]) @ right[:rank]
        np.testing.assert_allclose(target[layer].weight.numpy(), nearest)
        retained, total = retained + (sizes[:rank] ** 2).sum(), total + (sizes**2).sum()
    assert fraction == pytest.approx(retained / total)
    torch.testing.assert_close(target[1].weight, tuned[1].weight)
    torch.testing.assert_close(target[0].bias, tuned[0].bias)
    if rank == 6:  # at full rank, the copy is exact
        x = torch.randn(3, 6, dtype=torch.float64)
        torch.testing.assert_close(target(x), tuned(x))
