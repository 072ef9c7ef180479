import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from datamodules.documents import UserError
from lightning_modules.stored import load_weights, save_weights


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 5), nn.LayerNorm(5))


def test_matrices_in_eight_bits_are_off_by_half_a_step(tmp_path):
    model, again = network(), network()
    with torch.no_grad():
        model[0].weight[2] = 0
        again[0].weight.zero_()
    save_weights(tmp_path, {"a": 1}, model.state_dict(), bits=8)
    load_weights(tmp_path, again, model.state_dict())
    before, after = model[0].weight.detach().numpy(), again[0].weight.detach().numpy()
    steps = np.abs(before).max(1, keepdims=True) / 127
    assert (np.abs(after - before) <= steps / 2 + 1e-9).all()
    assert (after[2] == 0).all() and not (after == before).all()
    np.testing.assert_allclose(again[0].bias.detach(), model[0].bias.detach(), atol=1e-3)
    assert load_file(tmp_path / "model.safetensors")["0.weight"].dtype == torch.int8


def test_a_file_without_the_scales_of_a_matrix_is_refused(tmp_path):
    model = network()
    save_weights(tmp_path, {}, model.state_dict(), bits=8)
    stored = load_file(tmp_path / "model.safetensors")
    del stored["0.weight:scales"]
    save_file(stored, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=r"model\.safetensors: missing or broken"):
        load_weights(tmp_path, network(), model.state_dict())
