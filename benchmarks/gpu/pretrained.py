"""Weights of a pretrained model within a packed file: bfloat16, compressed to about 1.3 bytes for each weight."""

import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from datamodules.text.subwords import encoder_path

ARGUMENTS = ("encoder", "checkpoint")  # arguments of models that name a pretrained model


def named_in(model: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the argument that names a pretrained model, and the name; None for a model from scratch."""
    arguments = model.get("init_args") or {}
    return next(((name, arguments[name]) for name in ARGUMENTS if arguments.get(name)), None)


def read_pretrained(name: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the config and the weights of a folder, or of `minilm`.

    Raises:
        ValueError: if it is not a folder with config.json and model.safetensors.
    """
    folder = Path(encoder_path(name))
    paths = folder / "config.json", folder / "model.safetensors"
    if not all(path.is_file() for path in paths):
        raise ValueError(
            f"{name}: --weights needs a folder with config.json and model.safetensors; without --weights the model "
            "is loaded by this name on the machine that trains"
        )
    return json.loads(paths[0].read_text(encoding="utf-8")), load_file(paths[1])


def write_folder(folder: Path, config: dict[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Write a folder that `from_pretrained` reads, in single precision."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: w.float() if w.is_floating_point() else w for name, w in weights.items()},
              folder / "model.safetensors", {"format": "pt"})  # fmt: skip
    text = json.dumps(config | {"dtype": "float32", "torch_dtype": "float32"}, indent=1)
    (folder / "config.json").write_text(text, encoding="utf-8")


def compress(weights: Mapping[str, Tensor]) -> tuple[dict[str, np.ndarray], dict[str, list]]:
    """Return compressed bytes of each tensor, and its type and shape.

    High and low bytes of bfloat16 numbers are apart: a high byte has the sign and most of the exponent, of which few
    values occur. Tensors with the same values are compressed once.
    """
    contents, described, first = {}, {}, {}
    for name, tensor in weights.items():
        half = tensor.bfloat16() if tensor.is_floating_point() else tensor
        raw = half.contiguous().view(-1).view(torch.uint8).numpy()
        packed = zlib.compress(raw.reshape(-1, half.element_size()).T.tobytes(), 6)
        same = first.setdefault(packed, name)
        if same == name:
            contents[name] = np.frombuffer(packed, np.uint8)
        described[name] = [str(half.dtype).removeprefix("torch."), list(tensor.shape), same]
    return contents, described


def decompress(described: Mapping[str, list], content: Callable[[str], np.ndarray]) -> dict[str, Tensor]:
    """Return the tensors that `compress` described; `content` returns the bytes of a name."""
    weights = {}
    for name, (dtype, shape, same) in described.items():
        dtype = getattr(torch, dtype)
        planes = np.frombuffer(zlib.decompress(content(same).tobytes()), np.uint8).reshape(dtype.itemsize, -1)
        weights[name] = torch.from_numpy(planes.T.copy()).view(dtype).reshape(shape)
    return weights
