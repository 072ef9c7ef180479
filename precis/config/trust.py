"""Check the names of classes and functions in configs.

A config may come with a run folder or a sweep of unknown origin, and each class or function that it names is called
with arguments from the config: `os.system` with a command is one line of YAML. So a config may only name classes of the
suite, optimizers and schedules of torch, and parts of Lightning's Trainer. Any other name must be on the command line,
or needs `--trust`.
"""

import inspect
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any

import yaml
from jsonargparse import _common, set_parsing_settings

from datamodules.documents import UserError
from precis.config.command_table import TRAINING
from precis.files.data_files import load_yaml
from precis.files.nested_values import leaves

FLAG = "--trust"
VARIABLE = "PRECIS_TRUST"  # passes the flag on to processes of other devices, of a sweep and of a job array
REMEDY = f"name it on the command line, or pass {FLAG} if you trust whoever wrote the config (see SECURITY.md)"

# Modules that are imported because a config names them.
_MODULES = ("callbacks", "datamodules", "lightning_modules", "precis.training.run_scorer", "precis.config.parsers")
_MODULES += ("experiments.studies.controls.tasks", "torch.optim", "pytorch_lightning", "lightning_fabric")
_PREFIXES = tuple(f"{module}." for module in _MODULES)
SUITE = ("callbacks", "datamodules", "experiments", "lightning_modules", "precis")
_CLASS_OPTIONS = ("--model", "--data", "--trainer", "--optimizer", "--lr_scheduler", "--checkpoint", "--corpus")
_OPTIONS_WITH_FILES = (*_CLASS_OPTIONS, "--profile", "--paragraphs", "--fields")
_COMMANDS_OF_SWEEPS = ("validate", "test", "predict", "evaluate", "report")
_RUN = "{run}"  # the run folder in commands of sweeps
_OPTIONS_OF_TRAINING = ("--data.", "--model.", "--out", "--previews", "--run", "--seed_everything", "--wandb")
_OPTIONS_OF_TRAINING += tuple(f"--trainer.{name}" for name in ("accelerator", "devices", "limit_", "precision"))
_OUTPUTS = {"--out": ".jsonl", "--html": ".html"}  # options of commands of sweeps, with suffixes
_FILE_SUFFIXES = (".csv", ".gz", ".html", ".json", ".jsonl", ".md", ".parquet", ".png", ".svg", ".txt", ".yaml", ".yml")
_DOTTED_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")

_command_line_names: ContextVar[frozenset[str] | None] = ContextVar("named", default=None)


def is_trusted() -> bool:
    """Return whether configs may name any class and function."""
    return os.environ.get(VARIABLE) == "1"


@contextmanager
def import_policy(arguments: Sequence[str] = ()) -> Iterator[None]:
    """Let jsonargparse import only modules in `_MODULES` and names in `arguments`, unless all configs are trusted."""
    if is_trusted() or _command_line_names.get() is not None:  # an outer policy stays in force
        yield
        return
    names = names_on_command_line(arguments)
    token = _command_line_names.set(frozenset(names))
    original_settings = dict(_common.parsing_settings)  # there is no public function that returns them
    # A name on the command line permits its whole package, but not jsonargparse, nor a package of which `_MODULES` has
    # some modules, such as torch. A name in precis permits only its module, such as precis.baselines.chat_reward.
    guarded = {name.partition(".")[0] for name in _MODULES} | {"jsonargparse"}
    packages = {name.partition(".")[0] for name in names} - guarded
    modules = {name.rpartition(".")[0] for name in names if name.startswith("precis.")}
    set_parsing_settings(
        import_path_denylist=["*"],
        import_path_allowlist=[*_MODULES, *packages, *modules],
        instantiate_subclass_spec_in_any=False,  # a `class_path` in an untyped value stays a dictionary
    )
    try:
        yield
    finally:
        _common.parsing_settings.update(original_settings)
        _command_line_names.reset(token)


def with_absolute_files(arguments: Sequence[str]) -> list[str]:
    """Make config file names absolute in options that take files, as jsonargparse takes a bare `a.yaml` for a class."""
    absolute = []
    for argument, (option, value) in zip(arguments, _option_values(arguments)):
        path = Path(value)
        is_bare_file = path.name == value and path.suffix in (".yaml", ".yml", ".json") and path.is_file()
        if option.startswith(_OPTIONS_WITH_FILES) and is_bare_file:
            argument = argument.removesuffix(value) + str(path.resolve())  # keeps `--option=` before the value
        absolute.append(argument)
    return absolute


def names_on_command_line(arguments: Sequence[str]) -> set[str]:
    """Return the dotted names, such as `torch.optim.SGD`, in values, also nested, of options that take classes."""
    values = [value for option, value in _option_values(arguments) if option.startswith(_CLASS_OPTIONS)]
    return {text for value in values for text in strings_in(value) if _DOTTED_NAME.fullmatch(text)}


def _option_values(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (option, value) for each argument: of `--x=1`, ("--x", "1"); of `--x 1`, ("--x", "") and ("--x", "1")."""
    option = ""  # for values before the first option
    for argument in arguments:
        value = argument
        if argument.startswith("--"):
            option, _, value = argument.partition("=")
        yield option, value


def strings_in(value: str) -> Iterator[str]:
    """Yield the strings in a value of the command line, which may be a list or dictionary in YAML."""
    try:
        loaded = load_yaml(value)
    except yaml.YAMLError:  # not YAML: a plain string
        loaded = value
    yield from (part for _, part in leaves(loaded) if isinstance(part, str))


def check_permitted_names(config: Any) -> None:
    """Raise a `UserError` if a config names a class or function that it may not name, before anything is called."""
    names = _command_line_names.get() or frozenset()
    if not is_trusted():
        for where, name in _forbidden_names(config, names):
            raise UserError(f"{where}: {explain_forbidden_name(name)}")


def check_commands(commands: Sequence[str], source: str) -> None:
    """Raise a `UserError` if a command of a sweep file (its key `after`) does more than evaluate a run.

    A sweep runs the command as a command line, whose names are trusted. So a command with `--trust`, with a class that
    configs may not name, or with an output outside of the run folder is refused here.
    """
    for command in () if is_trusted() else commands:
        try:
            first, *words = shlex.split(command)
        except ValueError:  # an empty command, or an open quotation mark
            raise UserError(f"{source}: after: {command!r} is not a command; for example, use test") from None
        refused = [f"precis {first}"] if first not in _COMMANDS_OF_SWEEPS else list(_refused_options(first, words))
        # dotted names, also in lists, without file names: `evaluate --metrics` imports classes
        dotted = {part for word in words for part in re.split(r"[=,\s\[\]'\"]+", word) if _DOTTED_NAME.fullmatch(part)}
        names = {name for name in dotted if not name.endswith(_FILE_SUFFIXES)} | names_on_command_line(words)
        for name in sorted(names):
            if not name.startswith(_PREFIXES) or not is_permitted_class(object_named(name)):  # imports only `_PREFIXES`
                refused.append(name)
        if refused:
            allowed = f"only the classes of configs, {', '.join(_COMMANDS_OF_SWEEPS)}, and outputs in {_RUN}"
            remedy = f"pass {FLAG} if you trust whoever wrote it (see SECURITY.md)"
            raise UserError(f"{source}: after: {command!r}: a sweep may not name {refused[0]}, {allowed}; {remedy}")


def _refused_options(command: str, words: Sequence[str]) -> Iterator[str]:
    """Yield the arguments in `words` that make a command do more than evaluate a run, or write outside of the run."""
    if command == "evaluate" and not _is_in_run("".join(words[:1])):  # the scored file, beside which it writes
        yield f"{''.join(words[:1])!r} as the file of evaluate"
    for word, following in zip(words, [*words[1:], ""]):
        name, equals, value = word.partition("=")
        if not re.match(r"-+[^\d.]", name):  # no option but a value, such as a path or -0.5
            continue
        value = value if equals else following
        if name == FLAG or (command in TRAINING and not name.startswith(_OPTIONS_OF_TRAINING)):
            yield name
        if command in TRAINING and name.startswith("--run") and value != _RUN and not _is_in_run(value):
            yield word  # another run folder
        for option, suffix in _OUTPUTS.items():  # argparse takes abbreviations such as --ou, and `+=` appends to a list
            if option.startswith(name.rstrip("+")) and not (_is_in_run(value) and value.endswith(suffix)):
                yield f"{option} {value}"


def _is_in_run(path: str) -> bool:  # whether it is `{run}/...`; {run} is later replaced by the run folder
    return path.startswith(f"{_RUN}/") and ".." not in PurePath(path).parts


def needs_trust(config: Any) -> bool:
    """Return whether a config names classes or functions that need `--trust`, or their names on the command line."""
    return next(_forbidden_names(config, frozenset()), None) is not None


def _forbidden_names(config: Any, trusted_names: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield (key, name) of each class or function that a config may not name; `trusted_names` are permitted."""
    trusted = [named for name in trusted_names if (named := object_named(name)) is not None]
    for where, value in leaves(config):  # where: dotted key
        if where.rpartition(".")[2] == "class_path" and isinstance(value, str):
            # `object_named` imports a module; for a name that is forbidden anyway, None
            thing = object_named(value) if value in trusted_names or value.startswith(_PREFIXES) else None
            name = value
        elif callable(value) and not isinstance(value, os.PathLike):  # path objects of jsonargparse are callable
            thing = value  # class, function, or instance with `__call__`, which has no `__qualname__`
            name = f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', thing)}"
        else:
            continue
        if not is_permitted_class(thing) and not any(thing is named for named in trusted):
            yield where.removesuffix(".class_path"), name


def explain_forbidden_name(name: str) -> str:
    """Return the message on a class or function that a config may not name, with a remedy."""
    if hidden := hidden_in_working_folder(name):  # a module of the user, by a package of the suite with its name
        return f"there is no class {name}; {hidden}"
    return f"a config may not name {name}, which is not a class of the suite, optimizer, or part of a Trainer; {REMEDY}"


def hidden_in_working_folder(name: str) -> str:
    """Return the message that a module of the working folder is hidden by a package of the suite; "" if it is not."""
    package = name.partition(".")[0]
    if package == name or package not in SUITE or object_named(name) is not None:  # no dot, not ours, or it exists
        return ""
    module = Path(*name.split(".")[:-1])  # `callbacks/mine` of callbacks.mine.Hello
    suite_folder = Path(import_module(package).__file__).parent
    for path in (module / "__init__.py", module.with_suffix(".py")):
        if path.is_file() and suite_folder not in path.resolve().parents:  # else `path` is a file of the suite
            return f"{path} is not imported, because {package} is a package of the suite; rename yours"
    return ""


def is_permitted_class(thing: Any) -> bool:
    """Return whether untrusted configs may name `thing`: a public class of the suite or subclass of `_base_classes`."""
    if not inspect.isclass(thing):
        return False
    package = thing.__module__.partition(".")[0]
    if package in SUITE:
        return thing.__module__.startswith(_MODULES) and not thing.__name__.startswith("_")
    return issubclass(thing, _base_classes().get(package, ()))  # False for other libraries


@cache
def _base_classes() -> dict[str, tuple[type, ...]]:
    """Return the classes whose subclasses an untrusted config may name, by library; imports torch and Lightning."""
    from lightning_fabric import plugins as fabric_plugins
    from pytorch_lightning import Callback, accelerators, loggers, plugins, profilers, strategies
    from torch.optim import Optimizer, lr_scheduler

    fabric = (fabric_plugins.CheckpointIO, fabric_plugins.ClusterEnvironment)  # permitted in both libraries
    trainer = (Callback, loggers.Logger, strategies.Strategy, accelerators.Accelerator, profilers.Profiler)
    other_plugins = (fabric_plugins.Precision, plugins.LayerSync)  # only subclasses in pytorch_lightning are permitted
    return {
        "torch": (Optimizer, lr_scheduler.LRScheduler),
        "pytorch_lightning": (*trainer, *other_plugins, *fabric, lr_scheduler.LRScheduler),  # `ReduceLROnPlateau`
        "lightning_fabric": fabric,
    }


def check_checkpoint(config: Any) -> None:
    """Raise a `UserError` unless a checkpoint is a local file of weights; Lightning would unpickle a download."""
    if is_trusted():
        return
    if config.get("weights_only") is False:  # by default, PyTorch unpickles only weights from a local file
        raise UserError(f"weights_only: loading more than weights runs code; leave it out, or pass {FLAG}")
    path = config.get("ckpt_path")
    if path and not os.path.isfile(path):
        raise UserError(f"{path}: no such checkpoint; --ckpt_path takes a file, so download it first")


def object_named(name: str) -> Any:
    """Return the object with a dotted name; None if there is none."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError):  # a ValueError for a name without a dot
        return None
