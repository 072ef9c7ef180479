"""Suggestions for misspelt classes and options.

The suite's packages name their classes without importing them; torch and Lightning are imported only where one of their
names may be meant.
"""

import inspect
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from importlib import import_module

from jsonargparse import ArgumentParser

import callbacks
import datamodules
import lightning_modules
from datamodules import corpora
from precis.config.trust import object_named

_GROUPS = {"trainer": "pytorch_lightning.Trainer", "checkpoint": "pytorch_lightning.callbacks.ModelCheckpoint"}
_SIMILAR = 0.8  # ratio of difflib above which a class of the suite is suggested without looking at those of libraries


def suggest_class(class_path: str) -> str:
    """Suggest a similar class of the suite, of torch's optimizers or Lightning's callbacks; empty if none."""
    name = class_path.rpartition(".")[2]
    suite = (callbacks, corpora, datamodules, lightning_modules)
    packages_of = {known: package.__name__ for package in suite for known in package.__all__}
    close = get_close_matches(name, packages_of, n=1, cutoff=_SIMILAR)
    if not close:
        for library in ("torch.optim", "torch.optim.lr_scheduler", "pytorch_lightning.callbacks"):
            packages_of |= {known: library for known in dir(import_module(library)) if known[:1].isupper()}
        close = get_close_matches(name, packages_of, n=1)
    return f"did you mean {packages_of[close[0]]}.{close[0]}?" if close else ""


def suggest_option(name: str, owner: str) -> str:
    """Return the message that a class has no such option, with similar ones; empty if there is no such class.

    Args:
        name: option.
        owner: path of a class, or an option of the command line that holds a class (`trainer`, `checkpoint`).
    """
    kind = object_named(_GROUPS.get(owner, owner))
    if kind is None:
        return ""
    options = class_options(kind)
    # difflib scores abbreviations low: options with this prefix come first, as do those of this name in a group
    close = [option for option in options if option.startswith(name) or option.endswith(f".{name}")]
    close = close or get_close_matches(name, options)
    remedy = f"did you mean {' or '.join(close)}?" if close else f"it has {', '.join(options)}"
    return f"{kind.__name__} has no option {name!r}; {remedy}"


def class_options(owner: type) -> list[str]:
    """Return the arguments of a class and those that it passes on; dotted names for those in groups."""
    options = ArgumentParser().add_class_arguments(owner, fail_untyped=False)
    inits = [kind.__init__ for kind in owner.__mro__ if "__init__" in vars(kind)]
    defaults = {each.name: each.default for init in inits for each in inspect.signature(init).parameters.values()}
    groups = {name: defaults[name] for name in options if is_dataclass(defaults.get(name))}
    return [*options, *(f"{name}.{field.name}" for name, group in groups.items() for field in fields(group))]
