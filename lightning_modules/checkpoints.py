"""Find and read the checkpoints of a run folder; read and write the weights of an exported model."""

import json
import pickle
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from datamodules.documents import CorpusError
from lightning_modules.exported import EXPORTED


def best_checkpoint(run: Path) -> Path:
    """Return the best checkpoint of a run, or the weights of an exported model.

    If no validation has written a best checkpoint yet, the last one is returned, with a warning.

    Raises:
        CorpusError: if the run has no checkpoint, or the best one is a broken link.
    """
    best, last = (Path(run) / "checkpoints" / name for name in ("best.ckpt", "last.ckpt"))
    exported = Path(run) / EXPORTED
    if exported.is_file() and not best.parent.is_dir():
        return exported
    if best.is_file():
        return best
    if best.is_symlink():
        raise CorpusError(f"{best}: a link to {best.readlink()}, which does not exist; restore it, or give {last}")
    if last.is_file():
        _warn_of_last(best, last)
        return last
    raise CorpusError(f"{best.parent}: no checkpoint there; let the run train until its first validation")


@cache
def _warn_of_last(best: Path, last: Path) -> None:
    """Warn once in a process that a run has no best checkpoint."""
    warnings.warn(f"{best}: not found; {last} is taken in its place", stacklevel=3)


def find_damage(path: Path) -> str:
    """Return what is wrong with a checkpoint file, empty if it is intact; all bytes are verified by checksums."""
    if not zipfile.is_zipfile(path):
        return "no checkpoint, or only a part of one"
    try:
        with zipfile.ZipFile(path) as file:
            damaged = file.testzip()
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        return str(error)
    return f"{damaged} in it is damaged" if damaged else ""


def find_not_finite(weights: Mapping[str, Tensor]) -> str:
    """Return the name of the first tensor with a value that is not finite, empty if there is none."""
    floating = (item for item in weights.items() if item[1].is_floating_point())
    return next((name for name, tensor in floating if not tensor.isfinite().all()), "")


def read_checkpoint(path: Path, verify: bool = True) -> dict[str, Any]:
    """Return the content of a checkpoint, without executing code; weights are read lazily.

    Args:
        path: path of the file.
        verify: whether to verify checksums first, which takes about a second per gigabyte, and that weights are finite.

    Raises:
        CorpusError: if it is not a checkpoint, is damaged, or has weights that are not finite.
    """
    content = read_exported(path) if path.suffix == ".safetensors" else _load(path, verify)
    if verify and (name := find_not_finite(content["state_dict"])):
        raise CorpusError(f"{path}: training has diverged, {name} is not finite; give an earlier checkpoint of the run")
    return content


def _load(path: Path, verify: bool) -> dict[str, Any]:
    """Return the content of a checkpoint, see `read_checkpoint`."""
    if verify and (damage := find_damage(path)):
        raise CorpusError(f"{path}: {damage}; give another one of the run")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).strip().split("\n")[0]
        raise CorpusError(f"{path}: a broken checkpoint ({reason}); give another one of the run") from None
    if not isinstance(content, dict) or "state_dict" not in content:
        raise CorpusError(f"{path}: not a checkpoint of `precis fit`; give one from a run's checkpoints folder")
    return content


def write_exported(path: Path, weights: Mapping[str, Tensor], described: Mapping[str, Any]) -> None:
    """Write weights as safetensors, with plain values beside them in the header.

    Tensors that share their memory, such as tied embeddings, are written once.
    """
    stored: dict[tuple, str] = {}
    tensors, tied = {}, {}
    for name, value in weights.items():
        storage = (value.data_ptr(), value.shape, value.stride(), value.dtype)
        if value.numel() and storage in stored:
            tied[name] = stored[storage]
            continue
        stored[storage] = name
        tensors[name] = value.detach().cpu().contiguous().clone()
    header = {"format": "pt", "precis": json.dumps({**described, "tied": tied})}
    save_file(tensors, str(path), metadata=header)


def read_exported(path: Path) -> dict[str, Any]:
    """Return what `write_exported` wrote: the plain values, and the weights as `state_dict`.

    Raises:
        CorpusError: if it is not such a file, or is damaged.
    """
    try:
        with safe_open(str(path), framework="pt") as file:
            content = json.loads((file.metadata() or {})["precis"])
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        tied = content.pop("tied")
        return {**content, "state_dict": weights | {name: weights[stored_name] for name, stored_name in tied.items()}}
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise CorpusError(f"{path}: no weights of `precis export` ({reason}); export the run again") from None
