"""Compose the points of a sweep file into configs by the parser of `precis fit`, and check that they can be built."""

import copy
import json
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from jsonargparse import ArgumentError, ArgumentParser, Namespace
from pytorch_lightning import Callback

from callbacks.monitor_check import check_monitor
from datamodules.documents import UserError
from datamodules.text.hashing import text_digest
from datamodules.text.subwords import MINILM, encoder_path
from lightning_modules.summarizer import SCORES
from precis.config import value_checks
from precis.config.parse_errors import explain
from precis.config.run_arguments import check_linked
from precis.config.trust import check_permitted_names, object_named
from precis.config.written_paths import check_written_paths
from precis.files.nested_values import get_value
from precis.runs.checkpoint_files import find_start
from precis.runs.run_folder import build
from precis.sweeping.grid import SEED, Point, Sweep, flags, points_of
from precis.training.training import fit_parser

_NOT_PRETRAINED = ("small",)  # encoders without pretrained weights


def compose(sweep: Sweep) -> list[Point]:
    """Return a sweep's points with config (parsed as by `precis fit`) and folder name; a `UserError` for equal ones."""
    parser = fit_parser()
    defaults = _as_dict(parser, parser.get_defaults())
    by_digest: dict[str, Point] = {}  # composed points by the digest of their config
    parsed: dict[str, dict[str, Any]] = {}  # config by overrides without the seed: seeds share one slow parsing
    for point in points_of(sweep):
        seed = {SEED: point.overrides[SEED]} if sweep.seeds else {}
        without_seed = json.dumps({key: value for key, value in point.overrides.items() if key not in seed})
        if without_seed not in parsed:
            parsed[without_seed] = _compose_point(parser, sweep, point)
        config = parsed[without_seed] | seed
        # The digest is of values other than the defaults, so that a new option in a later version renames no run.
        changed = json.dumps(_without_defaults(config, defaults), sort_keys=True)
        digest = text_digest(changed)[:8]  # 32 bits suffice for the points of a sweep
        if digest in by_digest:
            earlier = by_digest[digest]  # equal config, maybe by other overrides: some may repeat a value of the base
            no_effect = [key for key, value in point.overrides.items() if earlier.overrides.get(key, value) != value]
            why = f" ({', '.join(no_effect)} changes nothing)" if no_effect else ""
            problem = f"the points {earlier.label!r} and {point.label!r} are the same run{why}"
            raise UserError(f"{sweep.path}: {problem}; remove one of them")
        words = (re.sub(r"[^A-Za-z0-9.+]+", "-", word).strip("-.") for word in point.label.split(" "))
        readable = "_".join(word for word in words if word)[:80]  # file systems limit names to 255 bytes
        by_digest[digest] = Point(point.label, point.overrides, config, f"{readable}_{digest}")
    return list(by_digest.values())


def compose_configs(sweep: Sweep, points: Iterable[Point]) -> list[dict[str, Any]]:
    """Return a sweep's base config with the overrides of each point, parsed as by `precis fit`."""
    parser = fit_parser()
    return [_compose_point(parser, sweep, point) for point in points]


def _compose_point(parser: ArgumentParser, sweep: Sweep, point: Point) -> dict[str, Any]:
    """Return the config of a point; a `UserError` names the sweep file and the point if it is invalid."""
    arguments = [f"--config={sweep.base}", *flags(point.overrides)]
    try:
        config = parser.parse_args(arguments)
        check_permitted_names(config)
        check_written_paths(config, None)  # outputs of the config; None: there is no run folder yet
        check_linked(arguments, config)  # refuses options of the data that take their values from the model
        return _as_dict(parser, config)
    except ArgumentError as error:
        raise UserError(f"{sweep.path}: point {point.label!r}: {explain(str(error), 'fit')}") from None
    except UserError as error:
        raise UserError(f"{sweep.path}: point {point.label!r}: {error}") from None


def _as_dict(parser: ArgumentParser, config: Namespace) -> dict[str, Any]:
    # By JSON, which is parsed many times faster than YAML.
    return json.loads(parser.dump(config, format="json", skip_validation=True, skip_unset=False))


def _without_defaults(config: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Return a config without the values that equal their defaults, and without sections that would be empty."""
    remaining = {}
    for key, value in config.items():
        default = defaults.get(key)
        if isinstance(value, dict) and isinstance(default, dict):
            value, default = _without_defaults(value, default), {}  # {}: an empty section is left out
        if value != default:
            remaining[key] = value
    return remaining


def check_buildable(configs: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Build model, data and callbacks of each point, a pair (label, config), to check that they accept their values.

    Models are built without allocating weights. For pretrained models, only their existence is checked. A `UserError`
    names the point and the key of a value that is refused.
    """
    checked: set[str] = set()  # model, data and callbacks that were built already, as JSON
    for label, config in configs:
        try:
            _check_config(copy.deepcopy(config), checked)  # a copy, because parsing changes its argument
        except UserError as error:
            raise UserError(f"point {label!r}: {error}") from None
        except value_checks.REFUSALS as error:  # what constructors raise for a wrong value
            raise UserError(f"point {label!r}: {value_checks.explain_refusal(error, config)}") from error


def _check_config(config: dict[str, Any], checked: set[str]) -> None:
    """Check a config as `check_buildable` does; parts in `checked` (as JSON) are not built again, others are added."""
    value_checks.check_ranges(config)
    value_checks.check_effects(config)  # refuses parts that would have none
    value_checks.check_no_keys(config)  # API keys and passwords, which the run folder would keep
    if config.get("start_from"):
        find_start(config)  # raises a `UserError` if there is no such checkpoint
    callbacks = (config.get("trainer") or {}).get("callbacks")  # a callback, a list of them, or None
    callback_list = callbacks if isinstance(callbacks, list) else list(filter(None, [callbacks]))
    _check_monitors(config, callback_list)
    parts = {"model": config["model"], "data": config["data"]}
    text = json.dumps([parts, callbacks], sort_keys=True, default=str)  # the same for points that differ by seed
    if text in checked:
        return
    checked.add(text)
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--callbacks", type=list[Callback] | Callback | None)
    parser.instantiate_classes(parser.parse_object({"callbacks": callbacks}))  # to check that they can be built
    if _is_pretrained(config["model"]):  # checks that the folder exists; loading the weights would take too long
        return
    try:
        with torch.device("meta"):  # allocates no weights
            build(parts)
    except Exception:  # a wrong value, or an operation that the meta device does not have
        build(parts)  # with weights: an error is now due to a wrong value


def _check_monitors(config: dict[str, Any], callbacks: list[dict[str, Any]]) -> None:
    """Check that the model logs the monitored values, unless model or callbacks are of users and may log anything."""
    model = object_named(config["model"]["class_path"])
    classes = [config["model"]["class_path"], *(callback["class_path"] for callback in callbacks)]
    are_known = all(name.startswith(("callbacks.", "lightning_modules.", "pytorch_lightning.")) for name in classes)
    if not are_known or not getattr(model, "validation_names", ()):  # names of the values that the model logs
        return
    monitors = {"checkpoint.monitor (metric of a search)": (config.get("checkpoint") or {}).get("monitor")}
    for callback in callbacks:
        monitors[f"monitor of {callback['class_path']}"] = (callback.get("init_args") or {}).get("monitor")
    for argument, name in monitors.items():  # argument: for messages; a search's metric becomes `checkpoint.monitor`
        if str(name).startswith("val/"):  # the only names that are known
            check_monitor(argument, name, [f"val/{each}" for each in (*SCORES, *model.validation_names)])


def _is_pretrained(model: dict[str, Any]) -> bool:
    """Return whether a model has pretrained parts. Raise `UserError` for a missing folder; warn of a download."""
    values = model.get("init_args") or {}
    names = {key: get_value(values, key) for key in value_checks.PRETRAINED}  # names or folders by option
    names = {key: name for key, name in names.items() if isinstance(name, str) and name not in _NOT_PRETRAINED}
    for key, name in names.items():
        if name == MINILM:
            encoder_path(name)  # raises a `UserError` if the package that has its weights is not installed
        elif Path(name).is_dir():
            continue
        elif name.count("/") > 1 or name.startswith((".", "/", "~")):  # not NAME or OWNER/NAME, as on the hub
            raise UserError(f"model.{key}: {value_checks.missing_model_message(name)}")
        elif not isinstance(try_to_load_from_cache(name, "config.json"), str):  # a path, if the hub's cache has it
            warnings.warn(f"model.{key}: {name} is not on this machine; a run will download it", stacklevel=2)
    return bool(names)
