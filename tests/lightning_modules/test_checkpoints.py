import json
import zipfile

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from datamodules.documents import UserError
from lightning_modules.checkpoints import read_checkpoint, write_exported
from lightning_modules.exported import EXPORTED
from lightning_modules.stored import load_weights, save_weights
from precis.sharing.foreign_files import read_weights

PLAIN = {"state_dict": {"weight": torch.ones(2)}, "global_step": 3}
CYCLE: list = []
CYCLE.append(CYCLE)


def rezipped(path, kind=zipfile.ZIP_STORED, program=None):
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w", kind) as file:
        for name, content in members.items():
            file.writestr(name, program if program and name.endswith("data.pkl") else content)


@pytest.mark.parametrize("name, value", [
    ("state_dict", None), ("state_dict", {"weight": 1.0}), ("state_dict", {"weight": torch.ones(2).to_sparse()}),
    ("state_dict", {"weight": torch.ones(2, device="meta")}), ("global_step", "3"), ("global_step", -1),
    ("loss_weights", [1.0]), ("loss_weights", {"nll": "1"}), ("loss_weights", {"nll": float("nan")}),
    ("coverage_gate", None), ("coverage_gate", True), ("own_edu_neutral", 1), ("encoder_window", 0),
    ("switches", {"gate": [1.0]}), ("switches", {"gate": [1.0, "1"]}), ("loops", []),
    ("loops", {"fit_loop": {"epoch_progress": {"current": ""}}}), ("callbacks", {"early": 3}), ("best_scores", 5),
    ("optimizer_states", [{"state": torch.ones(2).to_sparse()}]), ("metrics", {"rows": "1"}),
    ("metrics", {"rows": 1, "pending": {"step": 1}}), ("text", {"words": torch.ones(2)}),
])  # fmt: skip
def test_a_value_of_another_type_is_named(name, value, tmp_path):
    torch.save(PLAIN | {name: value}, path := tmp_path / "best.ckpt")
    with pytest.raises(UserError, match=rf"best\.ckpt: {name} is missing, or is not what") as caught:
        read_checkpoint(path)
    assert "\n" not in str(caught.value)


CALLS = {  # pickled calls that return half a terabyte, or the double of a text, and one that returns a byte
    "bytearray": b"cbuiltins\nbytearray\n\x8a\x06\x00\x00\x00\x00\x80\x00\x85R",
    "hex": b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x09\x00\x00\x00Hex-Codec\x86R",
    "latin1": b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x06\x00\x00\x00latin1\x86R",
}


@pytest.mark.parametrize("call, refused", [("bytearray", True), ("hex", True), ("latin1", False)])
def test_a_pickle_that_fills_the_memory_is_refused(call, refused, tmp_path):
    torch.save(PLAIN, path := tmp_path / "best.ckpt")
    rezipped(path, program=b"\x80\x02}X\x0a\x00\x00\x00state_dict" + CALLS[call] + b"s.")
    for read, problem in ((read_checkpoint, "global_step is missing"), (read_weights, "no weights in it")):
        with pytest.raises(UserError, match="made to fill the memory" if refused else problem):
            read(path)


@pytest.mark.parametrize("read", [read_checkpoint, lambda path: read_checkpoint(path, verify=False), read_weights])
def test_compressed_members_are_refused(read, tmp_path):
    torch.save({**PLAIN, "state_dict": {"weight": torch.zeros(1 << 20)}}, path := tmp_path / "best.ckpt")
    rezipped(path, zipfile.ZIP_DEFLATED)
    with pytest.raises(UserError, match="compressed, which no checkpoint is"):
        read(path)


@pytest.mark.parametrize("described", [
    "null", "[]", "3", '"tied"', "{}", "[" * 100_000, '{"tied": []}', '{"tied": {"a": "b"}, "global_step": 3}',
    '{"tied": {"a": []}, "global_step": 3}', '{"tied": {}, "global_step": []}', '{"tied": {}}',
    '{"tied": {}, "global_step": 3, "coverage_gate": {}}', '{"tied": {}, "global_step": 3, "loss_weights": [1]}',
])  # fmt: skip
def test_a_header_of_another_type_is_refused(described, tmp_path):
    path = tmp_path / "precis.safetensors"
    save_file({"weight": torch.ones(2)}, path, metadata={"precis": described})
    with pytest.raises(UserError, match=r"precis\.safetensors: ") as caught:
        read_checkpoint(path)
    assert "\n" not in str(caught.value)
    save_file({"weight": torch.ones(2)}, path, metadata={"precis": json.dumps({"tied": {}, "global_step": 3})})
    assert read_checkpoint(path)["global_step"] == 3


def test_tied_weights_are_written_once_and_values_read_as_they_are_written(tmp_path):
    table = torch.arange(6.0).view(2, 3)
    weights = {"a": table, "b": table, "c": table.clone(), "none": torch.zeros(0)}
    write_exported(tmp_path / EXPORTED, weights, {"n": 1, "global_step": 0})
    with safe_open(str(tmp_path / EXPORTED), framework="pt") as file:
        assert sorted(file.keys()) == ["a", "c", "none"]
    content = read_checkpoint(tmp_path / EXPORTED)
    assert content["n"] == 1 and list(content["state_dict"]) == ["a", "c", "none", "b"]
    assert all(torch.equal(content["state_dict"][name], table) for name in "abc")
    (tmp_path / EXPORTED).write_bytes(b"no weights")
    with pytest.raises(UserError, match="no weights of `precis export`"):
        read_checkpoint(tmp_path / EXPORTED)
    others = {"loss_weights": {"nll": 1}, "coverage_gate": 0.5, "switches": None, "loops": {"fit_loop": {"a": [True]}}}
    torch.save(PLAIN | others | {"optimizer_states": CYCLE}, path := tmp_path / "best.ckpt")
    content = read_checkpoint(path)
    assert content["global_step"] == 3 and content["state_dict"]["weight"].tolist() == [1, 1]


def test_matrices_in_eight_bits_are_off_by_half_a_step_and_need_their_scales(tmp_path):
    torch.manual_seed(0)
    model, again = (nn.Sequential(nn.Linear(7, 5), nn.LayerNorm(5)) for _ in range(2))
    with torch.no_grad():
        model[0].weight[2] = 0
    save_weights(tmp_path, {"a": 1}, model.state_dict(), bits=8)
    load_weights(tmp_path, again, model.state_dict())
    before, after = model[0].weight.detach().numpy(), again[0].weight.detach().numpy()
    steps = np.abs(before).max(1, keepdims=True) / 127
    assert (np.abs(after - before) <= steps / 2 + 1e-9).all()
    assert (after[2] == 0).all() and not (after == before).all()
    np.testing.assert_allclose(again[0].bias.detach(), model[0].bias.detach(), atol=1e-3)
    stored = load_file(tmp_path / "model.safetensors")
    assert stored["0.weight"].dtype == torch.int8
    del stored["0.weight:scales"]
    save_file(stored, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=r"model\.safetensors: missing or broken"):
        load_weights(tmp_path, again, model.state_dict())
