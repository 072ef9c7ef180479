"""Weights that come with the suite, or that `save_weights` wrote: a folder with config.json and model.safetensors."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from datamodules.documents import UserError
from datamodules.text.lines import load_json

SCALES = ":scales"  # suffix of the name of an 8-bit matrix, for the name of its scales


def save_weights(folder: Path, settings: Mapping[str, Any], state: Mapping[str, Tensor], bits: int = 16) -> None:
    """Write weights and settings as model.safetensors and config.json.

    Weights are in half precision, except that with 8 `bits` matrices are int8, with a scale of each row in NAME:scales.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    stored = {name: value.detach().half().cpu().contiguous() for name, value in state.items()}
    if bits == 8:
        for name, value in state.items():
            if value.dim() == 2:
                stored[name], stored[name + SCALES] = quantized(value.detach().cpu())
    save_file(stored, str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


def quantized(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return a matrix in 8 bits and the scale of each row: [n, m] -> int8 [n, m], float32 [n, 1].

    An entry is off by at most half the scale, which is the largest absolute value of its row divided by 127.
    """
    scales = matrix.float().abs().amax(1, keepdim=True).clamp(min=1e-12) / 127  # a row of zeros has a scale above 0
    return (matrix.float() / scales).round().to(torch.int8), scales


def dequantized(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a file: matrices in 8 bits times their scales, in float32, and all others unchanged."""
    return {
        name: value.float() * stored[name + SCALES] if value.dtype == torch.int8 else value
        for name, value in stored.items()
        if not name.endswith(SCALES)
    }


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the content of config.json; a `UserError` if it does not exist, or is not a JSON object."""
    try:
        settings = load_json((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: no model ({error}); name a folder with config.json and weights") from error
    if not isinstance(settings, dict):
        raise UserError(f"{folder}/config.json: not an object of settings")
    return settings


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the content of model.safetensors, matrices in float32; a `UserError` if it is missing or damaged."""
    file = folder / "model.safetensors"
    try:
        return dequantized(load_file(str(file)))
    except (OSError, KeyError, SafetensorError) as error:
        raise UserError(f"{file}: missing or broken ({error}); fetch it again") from error


def load_weights(folder: Path, model: nn.Module, expected: Mapping[str, Tensor]) -> None:
    """Load model.safetensors into a model; a `UserError` if names or shapes differ from the weights `expected`."""
    file = folder / "model.safetensors"
    state = read_weights(folder)
    if mismatched := mismatched_shapes(state, expected):
        raise UserError(  # names the first five, as there may be hundreds
            f"{file}: its weights do not fit at {', '.join(list(mismatched)[:5])}; they are of another model, or of "
            "another version of this one, which has to be trained again"
        )
    model.load_state_dict(state, strict=False)  # frozen pretrained weights are not stored


def mismatched_shapes(state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, tuple[Any, Any]]:
    """Return the shape on each side, or "absent", of weights for which they differ, by name in alphabetical order."""
    mismatched = {}
    for name in sorted(state.keys() | expected.keys()):
        shape, expected_shape = (list(side[name].shape) if name in side else "absent" for side in (state, expected))
        if shape != expected_shape:
            mismatched[name] = shape, expected_shape
    return mismatched


def digest(state: Mapping[str, Tensor], *settings: object) -> str:
    """Return the hexadecimal SHA-256 of weights, in any order, and of other settings that change a model's output."""
    sha256 = hashlib.sha256(repr(settings).encode())
    for name in sorted(state):
        value = state[name].detach().cpu().contiguous()
        sha256.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        sha256.update(value.view(-1).view(torch.uint8).numpy().tobytes())  # uint8, as numpy has no bfloat16
    return sha256.hexdigest()
