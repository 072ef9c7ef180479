"""Weights in files of other projects, read without executing pickled code."""

import pickle
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.serialization import safe_globals

from datamodules.documents import UserError
from lightning_modules.checkpoints import load_pickled

MOST_CLASSES = 200  # maximal number of classes in a pickled model


class Inert:
    """Stands for an object of any class in a file: it keeps attributes and runs no code of that class."""

    def __new__(cls, *_: Any, **__: Any) -> "Inert":
        return super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights of a checkpoint, a state dict or a pickled model, by name.

    torch reads the file with `weights_only`. A class or function that it refuses is not imported; an inert object takes
    its place, since only tensors are wanted.

    Raises:
        UserError: if there is no such file, or it holds no weights.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; give a checkpoint that was downloaded")
    content = _load(path)
    for key in ("model", "state_dict"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping | Inert):
            content = content[key]
    weights = dict(_tensors(content))
    if not weights:
        raise UserError(f"{path}: no weights in it; give a checkpoint with a state dict")
    return weights


def _load(path: Path) -> Any:
    stand_ins: dict[str, type[Inert]] = {}
    while len(stand_ins) < MOST_CLASSES:
        try:
            with safe_globals([(kind, name) for name, kind in stand_ins.items()]):
                return load_pickled(path)
        except (OSError, pickle.UnpicklingError) as error:
            refused = re.search(r"Unsupported global: GLOBAL (\S+) was not an allowed global", str(error))
            if refused is None or refused[1] in stand_ins:
                reason = " ".join(str(error).split())[:200]
                problem = f"its weights cannot be read without executing what is in it, or it is broken ({reason})"
                raise UserError(f"{path}: {problem}; {_REMEDY.format(path=path)}") from None
            stand_ins[refused[1]] = type(refused[1].rpartition(".")[2], (Inert,), {})
    raise UserError(f"{path}: more than {MOST_CLASSES} pickled classes; {_REMEDY.format(path=path)}")


_REMEDY = (
    "if you trust it, save its weights alone where it was made: "
    "python -c \"import torch; m = torch.load('{path}', map_location='cpu'); "
    "torch.save(m['model'] if isinstance(m, dict) else m.state_dict(), 'weights.pt')\", and import weights.pt"
)


def _tensors(content: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a state dict, or of the parameters, buffers and parts of a pickled module."""
    if isinstance(content, Inert):
        values = vars(content)
        for part in ("_parameters", "_buffers", "_modules"):
            yield from _tensors(values.get(part) or {}, prefix)
    elif isinstance(content, Mapping):
        for name, value in content.items():
            if isinstance(value, Tensor):
                yield f"{prefix}{name}", value.detach()
            elif isinstance(value, Inert):
                yield from _tensors(value, f"{prefix}{name}.")
