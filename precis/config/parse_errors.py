"""One-line explanations of argument errors of jsonargparse: where, what, and what to do."""

import inspect
import re
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from jsonargparse import ArgumentParser

import callbacks
import datamodules
import lightning_modules
from datamodules import corpora
from datamodules.documents import UserError
from precis.config.shipped import named_configs
from precis.config.trust import explain_forbidden_name, hidden_in_working_folder, object_named
from precis.files.data_files import read_yaml

_DATA_FILES = (".jsonl", ".csv", ".parquet", ".gz", ".txt")
_RELATIONS = {">": "above", ">=": "at least", "<": "below", "<=": "at most"}
_GROUPS = {"trainer": "pytorch_lightning.Trainer", "checkpoint": "pytorch_lightning.callbacks.ModelCheckpoint"}
_SIMILAR = 0.8  # ratio of difflib above which a class of the suite is suggested without looking into libraries


def explain(message: str, command: str) -> str:
    """Explain the message of a `jsonargparse.ArgumentError`, which lists all attempts to parse a value, in one line."""
    # Of several attempts to create a class, keep the error of the first, for the named class; others try base classes.
    if attempt := re.search(r"\n +- (?=Problem with given class_path)", message):
        message = "".join(re.split(f"{attempt[0]}(?=Problem with given class_path)", message)[:2])
    keys = re.findall(r'Parser key "([^"]+)"', message)  # from the outer to the inner parser
    classes = re.findall(r"given class_path '([^']+)'", message)  # that the user named
    where = f"{'.'.join(keys)}: " if keys else ""
    help_hint = f"`precis {command} --help` lists what there is"
    value = re.search(r"(?:Got|Given) value: (.*)", message)
    if value and keys and keys[-1] == "corpus" and Path(value[1]).suffix in _DATA_FILES:
        option = f"--{'.'.join(keys)}"
        return f"{where}{value[1]} is not a class; a file is given as {option} Files {option}.train {value[1]}"
    if "unhashable type: 'dict'" in message:
        return f"{where}class_path has to be the dotted name of a class"
    if match := re.search(r"Importing '([^']+)' is not allowed", message):
        if find_spec(match[1].partition(".")[0]) is None:
            return f"{where}there is no class {match[1]}; {suggest_class(match[1]) or help_hint}"
        return f"{where}{explain_forbidden_name(match[1])}"
    if match := re.search(r"Option '([^']+)' is not accepted", message):
        return f"{where}{suggest_option(match[1], classes[-1] if classes else '') or _no_option(match[1], help_hint)}"
    if classes and (match := re.search(r"Group '([^']+)' does not accept option '([^']+)'", message)):
        name = f"{match[1]}.{match[2]}"
        return f"{where}{suggest_option(name, classes[-1]) or _no_option(name, help_hint)}"
    if match := re.search(r"does not accept option '([^']+)'", message):
        group, _, name = match[1].rpartition(".")
        where = f"{group}: " if group else ""
        return f"{where}{suggest_option(name, group) or _no_option(name, help_hint)}"
    if match := re.search(r"has no attribute '([^']+)'|No module named '([^']+)'", message):
        name = classes[-1] if classes else match[1] or match[2]
        return f"{where}there is no class {name}; {suggest_class(name) or help_hint}"
    is_number = re.search(r"Expected an? <class '(float|int|bool)'>", message)  # also in a union, as lr: float | Tensor
    choices = ", ".join(re.findall(r"typing\.Literal\[([^]]*)\]", message))
    similar_choice = get_close_matches(value[1], re.findall(r"'([^']+)'", choices), n=1) if value else []  # one or none
    may_be_class = not is_number and not similar_choice
    if may_be_class and (match := re.search(r"Expected a dot import path string: (.*)", message)):
        remedy = suggest_class(match[1]) or "give its whole path, such as package.Class"
        return f"{where}no class {match[1]!r} is known; {remedy}"
    if match := re.search(r"Not of type \w+: (\S*?) ?does not conform to restriction (v.+)", message):
        bounds = re.sub(r"v([<>]=?)", lambda relation: f"{_RELATIONS[relation[1]]} ", match[2])  # v>0: above 0
        return f"{'.'.join(keys)} must be {bounds}, got {match[1] or (value and value[1])}"
    if match := re.search(r"Not of type \w+(Int|Float|Interval): ", message):
        return f"{where}expected {'int' if match[1] == 'Int' else 'float'}, got {message.split()[-1].strip(chr(39))!r}"
    if match := re.search(r"arguments are required: (.*)", message):
        missing = ", ".join(name.removeprefix(f"{command}.") for name in match[1].split(", "))
        if keys:  # arguments of a class
            return f"{where}missing: {missing}; give --{'.'.join(keys)}.{missing.split(', ')[0]}"
        return f"missing: {missing}; {'give --config, or name it; ' if 'model' in missing else ''}{help_hint}"
    expected = re.findall(r"Expected an? (<class '[^']+'>|typing\.Literal\[[^]]*\])", message)
    if expected and value:
        kinds = [expected[0]] if value[0].startswith("Got") else expected  # "Given": all types of a union were tried
        quote = "; put it in quotes: YAML reads on and off as true and false" if value[1] in ("True", "False") else ""
        hint = f"; did you mean {similar_choice[0]}?" if similar_choice else quote
        return f"{where}expected {' or '.join(map(_readable_type, kinds))}, got {value[1]!r}{hint}"
    if match := re.search(r"unrecognized arguments: (.*)", message):
        group, _, name = match[1].split()[0].partition("=")[0].removeprefix("--").partition(".")
        return f"no such argument: {match[1]}; {suggest_option(name, group) or help_hint}"
    return f"{' '.join(message.split())}; {help_hint}"


def _no_option(name: str, help_hint: str) -> str:
    return f"no option {name!r}; {help_hint}"


def _readable_type(kind: str) -> str:
    """Return a type in words: `int` for `<class 'int'>`, `one of 'a', 'b'` for `typing.Literal['a', 'b']`."""
    kind = re.sub(r"<class '(?:[\w.]*\.)?(\w+)'>", r"\1", kind).replace("NoneType", "null")
    choices = re.search(r"Literal\[(.*)\]", kind)
    return f"one of {choices[1]}" if choices else kind


def check_configs(arguments: list[str]) -> None:
    """Raise a `UserError` if a `--config` file is missing or not YAML, as jsonargparse ignores some of these errors."""
    for path in (Path(name) for _, name in named_configs(arguments)):
        if not path.is_file():
            raise UserError(f"{path}: no such config file; see experiments/configs for those of the suite")
        read_yaml(path)


def suggest_class(class_path: str) -> str:
    """Return why a class cannot be imported, or which similar class may be meant; "" if none is similar."""
    if explanation := hidden_in_working_folder(class_path):  # the suite has a package of this name
        return explanation
    name = class_path.rpartition(".")[2]
    suite = (callbacks, corpora, datamodules, lightning_modules)
    packages = {known: package.__name__ for package in suite for known in package.__all__}  # by name of the class
    similar = get_close_matches(name, packages, n=1, cutoff=_SIMILAR)  # at most one, of a high similarity
    if not similar:  # load libraries, which takes time, and accept less similarity (0.6 by default)
        for library in ("torch.optim", "torch.optim.lr_scheduler", "pytorch_lightning.callbacks"):
            packages |= {known: library for known in dir(import_module(library)) if known[:1].isupper()}  # classes
        similar = get_close_matches(name, packages, n=1)
    return f"did you mean {packages[similar[0]]}.{similar[0]}?" if similar else ""


def suggest_option(name: str, owner: str) -> str:
    """Return the message that a class has no option `name`, with similar options; "" if `owner` names no class.

    `owner` is the dotted name of the class, or a group of options such as `trainer`.
    """
    class_path = _GROUPS.get(owner, owner)  # a group such as `trainer` creates a class
    owner_class = object_named(class_path) if "." in class_path else None
    if owner_class is None or not name:
        return ""
    options = class_options(owner_class)
    # `enc` means `encoder`, and `checkpoint` means `encoder.checkpoint`, though difflib rates them as dissimilar
    similar = [option for option in options if option.startswith(name) or option.endswith(f".{name}")]
    similar = similar or get_close_matches(name, options)
    remedy = f"did you mean {' or '.join(similar)}?" if similar else f"it has {', '.join(options)}"
    return f"{owner_class.__name__} has no option {name!r}; {remedy}"


@cache  # the slow part of `precis completion`, which needs the options of a class for several commands
def class_options(owner: type) -> list[str]:
    """Return the arguments of a class and its bases, and fields of dataclass arguments, as `encoder.checkpoint`."""
    options = ArgumentParser().add_class_arguments(owner, fail_untyped=False)
    # base classes first, since a class may replace their defaults
    inits = [cls.__init__ for cls in reversed(owner.__mro__) if "__init__" in vars(cls)]
    defaults = {each.name: each.default for init in inits for each in inspect.signature(init).parameters.values()}
    groups = {name: defaults[name] for name in options if is_dataclass(defaults.get(name))}
    return [*options, *(f"{name}.{field.name}" for name, group in groups.items() for field in fields(group))]
