"""Checkpoints of a run folder: which one, and what is in it."""

import pickle
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch

from datamodules.documents import CorpusError


def best_checkpoint(run: Path) -> Path:
    """The run's best checkpoint; its last one, with a warning, if no validation has written a best one yet.

    Raises:
        CorpusError: if it has none, or the best one is a link to a file that is not there.
    """
    best, last = (Path(run) / "checkpoints" / name for name in ("best.ckpt", "last.ckpt"))
    if best.is_file():
        return best
    if best.is_symlink():
        raise CorpusError(f"{best}: a link to {best.readlink()}, which is not there; restore that file, or name {last}")
    if last.is_file():
        warnings.warn(f"{best}: not there; {last} is taken in its place", stacklevel=2)
        return last
    raise CorpusError(f"{best.parent}: no checkpoint there; let the run train until its first validation")


def find_damage(path: Path) -> str:
    """What is wrong with a checkpoint file; empty if nothing is. Every byte is compared with the file's checksums."""
    if not zipfile.is_zipfile(path):
        return "no checkpoint, or only a part of one"
    try:
        with zipfile.ZipFile(path) as file:
            damaged = file.testzip()
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        return str(error)
    return f"{damaged} in it is damaged" if damaged else ""


def read_checkpoint(path: Path, verify: bool = True) -> dict[str, Any]:
    """A checkpoint's content; nothing in it is executed, and weights are read when they are used.

    Args:
        path: of the file.
        verify: whether every byte is checked first (about a second for each gigabyte).

    Raises:
        CorpusError: if it is none, or is broken.
    """
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
