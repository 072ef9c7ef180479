"""What jsonargparse says of wrong arguments, in one line: where, what, and what to do."""

import difflib
import inspect
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
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
from datamodules.documents import CorpusError
from experiments.trust import not_to_be_named
from experiments.yaml_files import read_yaml

_GROUPS = {"trainer": Trainer, "checkpoint": ModelCheckpoint}
_HELP = "`precis {command} --help` lists what there is"


def explain(message: str, command: str) -> str:
    """One line for the message of a `jsonargparse.ArgumentError`.

    Args:
        message: as jsonargparse words it, a tree of what it tried over many lines.
        command: the command whose arguments are wrong.
    """
    keys = re.findall(r'Parser key "([^"]+)"', message)
    classes = re.findall(r"given class_path '([^']+)'", message)
    where = f"{'.'.join(keys)}: " if keys else ""
    look = _HELP.format(command=command)
    if found := re.search(r"Importing '([^']+)' is not allowed", message):
        if find_spec(found[1].partition(".")[0]) is None:
            return f"{where}there is no class {found[1]}; {_like(found[1]) or look}"
        return f"{where}{not_to_be_named(found[1])}"
    if found := re.search(r"Option '([^']+)' is not accepted", message):
        return f"{where}{_no_option(found[1], _load(classes[-1]) if classes else None, look)}"
    if found := re.search(r"does not accept option '([^']+)'", message):
        group, _, name = found[1].rpartition(".")
        return f"{group}: {_no_option(name, _GROUPS.get(group), look)}" if group else f"no option {name!r}; {look}"
    if found := re.search(r"has no attribute '([^']+)'|No module named '([^']+)'", message):
        name = classes[-1] if classes else found[1] or found[2]
        return f"{where}there is no class {name}; {_like(name) or look}"
    if found := re.search(r"Expected a dot import path string: (.*)", message):
        remedy = _like(found[1]) or "give its whole path, such as package.Class"
        return f"{where}no class {found[1]!r} is known; {remedy}"
    expected = re.findall(r"Expected an? (<class '[^']+'>|typing\.Literal\[[^]]*\])", message)
    given = re.search(r"(?:Got|Given) value: (.*)", message)
    if expected and given:
        kinds = [expected[0]] if given[0].startswith("Got") else expected
        quote = "; put it in quotes: YAML reads on and off as true and false" if given[1] in ("True", "False") else ""
        return f"{where}expected {' or '.join(map(_plain, kinds))}, got {given[1]!r}{quote}"
    if found := re.search(r"arguments are required: (.*)", message):
        missing = ", ".join(name.removeprefix(f"{command}.") for name in found[1].split(", "))
        return f"missing: {missing}; {'give --config, or name it; ' if 'model' in missing else ''}{look}"
    if found := re.search(r"unrecognized arguments: (.*)", message):
        return f"no such argument: {found[1]}; {_like_option(found[1]) or look}"
    return f"{' '.join(message.split())}; {look}"


def _like(class_path: str) -> str:
    """Which class of the suite, torch's optimizers or Lightning's callbacks may have been meant; empty if none."""
    packages = (callbacks, corpora, datamodules, lightning_modules, torch.optim, lr_scheduler, lightning_callbacks)
    known = {name: package.__name__ for package in packages for name in _classes(package)}
    close = difflib.get_close_matches(class_path.rpartition(".")[2], known, n=1)
    return f"did you mean {known[close[0]]}.{close[0]}?" if close else ""


def _classes(package: ModuleType) -> list[str]:
    return [name for name in getattr(package, "__all__", dir(package)) if name[:1].isupper()]


def _like_option(arguments: str) -> str:
    """Which option of a group may have been meant by the first of some arguments; empty if none."""
    group, _, name = arguments.split()[0].partition("=")[0].removeprefix("--").partition(".")
    owner = _GROUPS.get(group)
    return _no_option(name, owner, "") if owner and name else ""


def _load(class_path: str) -> type | None:
    module, _, name = class_path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        return None


def _no_option(name: str, owner: type | None, look: str) -> str:
    """That a class has no such argument, and which one may have been meant."""
    if owner is None:
        return f"no option {name!r}; {look}"
    there = _options(owner)
    # an abbreviation is no misspelling for difflib, but is meant to be the longer word
    close = [word for word in there if word.startswith(name)] or difflib.get_close_matches(name, there)
    remedy = f"did you mean {' or '.join(close)}?" if close else f"it has {', '.join(there)}"
    return f"{owner.__name__} has no option {name!r}; {remedy}"


def _options(owner: type) -> list[str]:
    """The arguments of a class, with those that it passes on to its bases."""
    found: dict[str, None] = {}
    for kind in (kind for kind in owner.__mro__ if "__init__" in vars(kind)):
        arguments = list(inspect.signature(kind.__init__).parameters.values())[1:]
        found |= dict.fromkeys(each.name for each in arguments if each.kind is not each.VAR_KEYWORD)
        if all(each.kind is not each.VAR_KEYWORD for each in arguments):
            break
    return list(found)


def _plain(kind: str) -> str:
    """A type as people write it."""
    kind = re.sub(r"<class '(?:[\w.]*\.)?(\w+)'>", r"\1", kind).replace("NoneType", "null")
    choices = re.search(r"Literal\[(.*)\]", kind)
    return f"one of {choices[1]}" if choices else kind


def check_configs(arguments: list[str]) -> None:
    """Looks at the config files that arguments name, and for what jsonargparse would pass over in silence.

    Raises:
        CorpusError: if a file is absent or is no YAML, with its line.
    """
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name not in ("--config", "-c"):
            continue
        path = Path(value if equals else "".join(arguments[index + 1 : index + 2]))
        if not path.is_file():
            raise CorpusError(f"{path}: no such config file; see experiments/configs for those of the suite")
        read_yaml(path)
