"""Suggestions for misspelt classes and options.

This module imports torch, Lightning and the suite's packages, so `parse_errors` only imports it when it needs one.
"""

import difflib
import inspect
from importlib import import_module
from types import ModuleType

import torch
from pytorch_lightning import Trainer
from pytorch_lightning import callbacks as lightning_callbacks
from pytorch_lightning.callbacks import ModelCheckpoint
from torch.optim import lr_scheduler

import callbacks
import datamodules
import lightning_modules
from datamodules import corpora

_GROUPS = {"trainer": Trainer, "checkpoint": ModelCheckpoint}


def suggest_class(class_path: str) -> str:
    """Suggest a similar class of the suite, of torch's optimizers or Lightning's callbacks; empty if none."""
    packages = (callbacks, corpora, datamodules, lightning_modules, torch.optim, lr_scheduler, lightning_callbacks)
    packages_of = {name: package.__name__ for package in packages for name in _classes(package)}
    close = difflib.get_close_matches(class_path.rpartition(".")[2], packages_of, n=1)
    return f"did you mean {packages_of[close[0]]}.{close[0]}?" if close else ""


def suggest_option(name: str, owner: str) -> str:
    """Return the message that a class has no such option, with similar ones; empty if there is no such class.

    Args:
        name: option.
        owner: path of a class, or an option of the command line that holds a class (`trainer`, `checkpoint`).
    """
    kind = _GROUPS.get(owner) or _load(owner)
    if kind is None:
        return ""
    options = _options(kind)
    # difflib scores abbreviations low: options with this prefix come first
    close = [option for option in options if option.startswith(name)] or difflib.get_close_matches(name, options)
    remedy = f"did you mean {' or '.join(close)}?" if close else f"it has {', '.join(options)}"
    return f"{kind.__name__} has no option {name!r}; {remedy}"


def _classes(package: ModuleType) -> list[str]:
    return [name for name in getattr(package, "__all__", dir(package)) if name[:1].isupper()]


def _load(class_path: str) -> type | None:
    module, _, name = class_path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        return None


def _options(owner: type) -> list[str]:
    """Return the arguments of a class, with those that it passes on to its bases."""
    options: dict[str, None] = {}
    for kind in (kind for kind in owner.__mro__ if "__init__" in vars(kind)):
        arguments = list(inspect.signature(kind.__init__).parameters.values())[1:]
        options |= dict.fromkeys(each.name for each in arguments if each.kind is not each.VAR_KEYWORD)
        if all(each.kind is not each.VAR_KEYWORD for each in arguments):
            break
    return list(options)
