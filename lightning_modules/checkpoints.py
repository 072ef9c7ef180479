"""Checkpoints of a run folder: which one, and what is in it."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from datamodules.documents import CorpusError


def best_checkpoint(run: Path) -> Path:
    """The run's best checkpoint, its last one if there is no best.

    Raises:
        CorpusError: if it has none.
    """
    for name in ("best.ckpt", "last.ckpt"):
        if (path := Path(run) / "checkpoints" / name).is_file():
            return path
    raise CorpusError(f"{Path(run) / 'checkpoints'}: no checkpoint there; let the run train until its first validation")


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint's content; nothing in it is executed, and weights are read when they are used.

    Raises:
        CorpusError: if it is none, or is broken.
    """
    if not zipfile.is_zipfile(path):
        raise CorpusError(f"{path}: no checkpoint, or only a part of one; give another one of the run")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).strip().split("\n")[0]
        raise CorpusError(f"{path}: a broken checkpoint ({reason}); give another one of the run") from None
    if not isinstance(content, dict) or "state_dict" not in content:
        raise CorpusError(f"{path}: not a checkpoint of `precis fit`; give one from a run's checkpoints folder")
    return content
