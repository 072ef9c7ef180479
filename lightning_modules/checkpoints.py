"""Find and read the checkpoints of a run folder; read and write the weights of an exported model."""

import io
import json
import pickle
import pickletools
import re
import warnings
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from datamodules.documents import UserError
from datamodules.text.lines import load_json
from lightning_modules.checkpoint_values import find_invalid_value
from lightning_modules.exported import EXPORTED
from lightning_modules.stored import SCALES, dequantized, quantized

# codecs of Python that may write more than they read, by their names without punctuation
_GROWING_CODECS = {"base64", "bz2", "hex", "quopri", "quotedprintable", "uu", "zip", "zlib"}


def best_checkpoint(run: Path) -> Path:
    """Return the best checkpoint of a run, or the weights of an exported model.

    If no validation has written a best checkpoint yet, the last one is returned, with a warning. A `UserError` if the
    run has no checkpoint, or the best one is a broken link.
    """
    best, last = (Path(run) / "checkpoints" / name for name in ("best.ckpt", "last.ckpt"))
    exported = Path(run) / EXPORTED  # weights
    if exported.is_file() and not best.parent.is_dir():  # checkpoints have precedence
        return exported
    if best.is_file():
        return best
    if best.is_symlink():  # a broken link, because `is_file`, which follows links, was False
        raise UserError(f"{best}: a link to {best.readlink()}, which does not exist; restore it, or give {last}")
    if last.is_file():
        _warn_of_last(best, last)
        return last
    raise UserError(f"{best.parent}: no checkpoint there; let the run train until its first validation")


@cache
def _warn_of_last(best: Path, last: Path) -> None:
    """Warn once per process and run that a run has no best checkpoint."""
    warnings.warn(f"{best}: not found; {last} is taken in its place", stacklevel=3)


def find_damage(path: Path, verify: bool = True) -> str:
    """Return what is wrong with a checkpoint file, empty if it is intact; `verify` reads all bytes for their checksums.

    Members of the zip file must be stored without compression, as torch writes them: a small file with compressed or
    overlapping members could fill the memory.
    """
    try:
        if not zipfile.is_zipfile(path):
            return "no checkpoint, or only a part of one"
        with zipfile.ZipFile(path) as file:
            members = file.infolist()
            is_stored = all(member.compress_type == zipfile.ZIP_STORED for member in members)
            if not is_stored or sum(member.file_size for member in members) > path.stat().st_size:  # >: overlapping
                return "compressed, which no checkpoint is"
            damaged_member = file.testzip() if verify else None
    except Exception as error:  # zipfile raises errors of many kinds for damaged files
        return str(error)
    return f"{damaged_member} in it is damaged" if damaged_member else ""


def find_not_finite(weights: Mapping[str, Tensor]) -> str:
    """Return the name of the first tensor with a value that is not finite, empty if there is none."""
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            return name
    return ""


def load_pickled(path: Path, mmap: bool = False) -> Any:
    """Return the content of a file of `torch.save`, without executing code; an `UnpicklingError` if that fails."""
    try:
        if zipfile.is_zipfile(path):
            if damage := find_damage(path, verify=False):  # checksums would take another pass over all bytes
                raise pickle.UnpicklingError(damage)
            with zipfile.ZipFile(path) as file:
                name = next(name for name in file.namelist() if name.endswith("data.pkl"))
                _check_calls(io.BytesIO(file.read(name)), pickles=1)
        else:
            with path.open("rb") as stream:  # the format of torch before version 1.6
                _check_calls(stream, pickles=4)  # magic number, version, byte order and type sizes, content
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except (OSError, pickle.UnpicklingError):
        raise
    except Exception as error:  # torch raises errors of many kinds for damaged files
        raise pickle.UnpicklingError(str(error) or type(error).__name__) from None


def _check_calls(stream: BinaryIO, pickles: int) -> None:
    """Raise an `UnpicklingError` if one of the first `pickles` pickles of a stream could fill memory from a few bytes.

    `torch.load` allows `bytearray`, which makes a buffer of any size, and nested calls of `encode`, which grow a text.
    """
    functions, texts = set(), set()
    for _ in range(pickles):  # torch before 1.6 wrote several in a row
        for operation, argument, _ in pickletools.genops(stream):
            if operation.name == "GLOBAL":  # the only opcode for functions that `torch.load` accepts
                functions.add(argument.split()[-1])  # the argument is "module name"
            elif isinstance(argument, str):  # perhaps a codec, "zlib_codec" for "zlib"; [:50], as their names are short
                texts.add(re.sub("[^a-z0-9]|codec$", "", argument[:50].lower()))
    # `encode` itself is needed: it makes bytes of a text in pickles of Python 2
    if "bytearray" in functions or ("encode" in functions and texts & _GROWING_CODECS):
        raise pickle.UnpicklingError("it is made to fill the memory")


def read_checkpoint(path: Path, verify: bool = True) -> dict[str, Any]:
    """Return the content of a checkpoint, or of an exported model, without executing code.

    `verify` reads and checks all weights, a second per gigabyte; without it, a checkpoint's weights are read when used.

    Raises:
        UserError: if it is not a checkpoint, is damaged, has a value of a type that `precis fit` does not write, or has
            weights that are not finite.
    """
    content = read_exported(path) if path.suffix == ".safetensors" else _load(path, verify)
    if verify and (name := find_not_finite(content["state_dict"])):
        raise UserError(f"{path}: training has diverged, {name} is not finite; give an earlier checkpoint of the run")
    return content


def _load(path: Path, verify: bool) -> dict[str, Any]:
    """Return the content of a checkpoint that training wrote, see `read_checkpoint`; `verify` checks its checksums."""
    if damage := find_damage(path, verify):
        raise UserError(f"{path}: {damage}; give another one of the run")
    try:
        content = load_pickled(path, mmap=True)  # weights are read when they are used
    except pickle.UnpicklingError as error:
        reason = str(error).strip().split("\n")[0]  # without the advice of torch that follows
        raise UserError(f"{path}: a broken checkpoint ({reason}); give another one of the run") from None
    if not isinstance(content, dict) or "state_dict" not in content:
        raise UserError(f"{path}: not a checkpoint of `precis fit`; give one from a run's checkpoints folder")
    _check_values(path, content)  # raises if a type is wrong
    return content


def _check_values(path: Path, content: Mapping[str, Any]) -> None:
    """Raise a `UserError` if a value of a checkpoint is missing, or is not of the type that the suite writes."""
    if (name := find_invalid_value(content)) is not None:
        raise UserError(f"{path}: {name} is missing, or is not what `precis` writes; give another checkpoint")


def write_exported(path: Path, weights: Mapping[str, Tensor], metadata: Mapping[str, Any], bits: int = 32) -> None:
    """Write weights as safetensors, with plain values, `metadata` such as `global_step`, as JSON in the header.

    Tensors that share memory, like tied embeddings, are written once. With 8 bits, matrices are int8 with scales.
    """
    first_names: dict[tuple, str] = {}  # storage -> name under which its values are written
    tensors, tied = {}, {}  # name -> values to write; name -> first name of the same values
    for name, value in weights.items():
        storage = (value.data_ptr(), value.shape, value.stride(), value.dtype)  # equal for tied tensors
        if value.numel() and storage in first_names:  # empty tensors all have address 0
            tied[name] = first_names[storage]
            continue
        first_names[storage] = name
        tensors[name] = value.detach().cpu().contiguous().clone()  # `save_file` refuses tensors that overlap
        if bits == 8 and value.dim() == 2 and value.is_floating_point():
            tensors[name], tensors[name + SCALES] = quantized(tensors[name])
    header = {"format": "pt", "precis": json.dumps({**metadata, "tied": tied})}
    save_file(tensors, str(path), metadata=header)


def read_exported(path: Path) -> dict[str, Any]:
    """Return the values that `write_exported` wrote, with weights as `state_dict`; a `UserError` if that fails."""
    try:
        with safe_open(str(path), framework="pt") as file:
            content = load_json((file.metadata() or {})["precis"])  # KeyError: not of `precis export`
            stored_weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no iterator)
        weights = dequantized(stored_weights)
        tied = content.pop("tied")  # name of a weight -> name of the weight that has its values
        weights |= {name: weights[stored_name] for name, stored_name in tied.items()}
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: no weights of `precis export` ({reason}); export the run again") from None
    content |= {"state_dict": weights}
    _check_values(path, content)
    return content
