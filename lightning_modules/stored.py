"""Weights that come with the suite, or that `save` wrote: a folder with config.json and model.safetensors."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from datamodules.documents import CorpusError

Model = TypeVar("Model", bound=nn.Module)


def save_weights(folder: Path, settings: Mapping[str, Any], state: Mapping[str, Tensor]) -> None:
    """Writes config.json and model.safetensors, in half precision."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    halves = {name: value.detach().half().cpu().contiguous() for name, value in state.items()}
    save_file(halves, str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


def read_settings(folder: Path) -> dict[str, Any]:
    """What config.json says.

    Raises:
        CorpusError: if there is none, or it is no JSON object.
    """
    try:
        settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise CorpusError(f"{folder}: no model ({error}); name a folder with config.json and weights") from error
    if not isinstance(settings, dict):
        raise CorpusError(f"{folder}/config.json: not an object of settings")
    return settings


def load_weights(folder: Path, model: nn.Module, expected: Mapping[str, Tensor]) -> None:
    """Fills a model with the weights of a folder.

    Args:
        folder: with model.safetensors.
        model: to fill.
        expected: names and shapes of what the folder must hold.

    Raises:
        CorpusError: if the file is not there, is broken, or holds other weights.
    """
    file = folder / "model.safetensors"
    try:
        state = {name: value.float() for name, value in load_file(str(file)).items()}
    except (OSError, SafetensorError) as error:
        raise CorpusError(f"{file}: missing or broken ({error}); fetch it anew") from error
    names = expected.keys() | state.keys()
    wrong = [n for n in names if n not in state or n not in expected or state[n].shape != expected[n].shape]
    if wrong:
        raise CorpusError(f"{file}: weights do not fit config.json at {', '.join(sorted(wrong)[:5])}")
    model.load_state_dict(state, strict=False)


def load_model(kind: Callable[..., Model], folder: Path, noun: str, options: Mapping[str, Any]) -> Model:
    """Return the model that a folder holds, in eval mode.

    Args:
        kind: its class, with `state_to_keep`.
        folder: that `save_weights` wrote.
        noun: what the class is, for messages.
        options: arguments that replace the stored ones.

    Raises:
        CorpusError: if the folder holds no such model, or its weights do not fit.
    """
    settings = read_settings(folder)
    try:
        model = kind(**settings | options)
    except TypeError as error:
        raise CorpusError(f"{folder}/config.json: not {noun}'s ({error})") from error
    load_weights(folder, model, model.state_to_keep())
    return model.eval()


def digest(state: Mapping[str, Tensor], *others: object) -> str:
    """SHA-256 of weights and of what else changes a model's answers, hexadecimal."""
    total = hashlib.sha256(repr(others).encode())
    for name in sorted(state):
        value = state[name].detach().cpu().contiguous()
        total.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        total.update(value.view(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
