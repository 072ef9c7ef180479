"""Check that the points of a sweep can be built, before any starts."""

import copy
import json
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from jsonargparse import ArgumentParser
from pytorch_lightning import Callback

from callbacks.monitor_check import check_monitor
from datamodules.documents import UserError
from datamodules.text.subwords import MINILM, encoder_path
from lightning_modules.summarizer import SCORES
from precis.config.trust import object_named
from precis.config.value_checks import (
    PRETRAINED,
    REFUSALS,
    check_no_keys,
    check_ranges,
    explain_refusal,
    missing_model_message,
)
from precis.files.nested_values import get_value
from precis.runs.run_folder import build
from precis.runs.starting_point import find_start

_FROM_SCRATCH = ("small",)  # encoders without pretrained weights


def check_buildable(configs: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Build model, data and callbacks of each config, to check that they accept their values.

    Models are built without allocating weights. For pretrained ones, only their existence is checked.

    Args:
        configs: labels (for messages) and configs of `precis fit`.

    Raises:
        UserError: if a value is refused; the message has label and key.
    """
    checked: set[str] = set()
    for label, config in configs:
        try:
            _check_config(copy.deepcopy(config), checked)  # parsing changes its argument
        except UserError as error:
            raise UserError(f"point {label!r}: {error}") from None
        except REFUSALS as error:
            raise UserError(f"point {label!r}: {explain_refusal(error, config)}") from error


def _check_config(config: dict[str, Any], checked: set[str]) -> None:
    check_ranges(config)
    check_no_keys(config)
    if config.get("start_from"):
        find_start(config)
    callbacks = (config.get("trainer") or {}).get("callbacks")
    _check_monitors(config, callbacks if isinstance(callbacks, list) else [callbacks] if callbacks else [])
    parts = {"model": config["model"], "data": config["data"]}
    # Points that differ in their seeds alone are built once.
    key = json.dumps([parts, callbacks], sort_keys=True, default=str)
    if key in checked:
        return
    checked.add(key)
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--callbacks", type=list[Callback] | Callback | None)
    parser.instantiate_classes(parser.parse_object({"callbacks": callbacks}))
    if _is_pretrained(config["model"]):
        return
    try:
        with torch.device("meta"):
            build(parts)
    except Exception:
        build(parts)  # with weights, so that an error is from the constructor, not from the meta device


def _check_monitors(config: dict[str, Any], callbacks: list[dict[str, Any]]) -> None:
    """Check that a model of the suite logs what is monitored; the models and callbacks of users may log anything."""
    model = object_named(config["model"]["class_path"])
    classes = [config["model"]["class_path"], *(callback["class_path"] for callback in callbacks)]
    are_checked = all(name.startswith(("callbacks.", "lightning_modules.", "pytorch_lightning.")) for name in classes)
    if not are_checked or not getattr(model, "validation_names", ()):
        return
    monitors = {"checkpoint.monitor (metric of a search)": (config.get("checkpoint") or {}).get("monitor")}
    for callback in callbacks:
        monitors[f"monitor of {callback['class_path']}"] = (callback.get("init_args") or {}).get("monitor")
    for argument, name in monitors.items():
        if str(name).startswith("val/"):
            check_monitor(argument, name, [f"val/{each}" for each in (*SCORES, *model.validation_names)])


def _is_pretrained(model: dict[str, Any]) -> bool:
    """Return whether a model has pretrained parts; a `UserError` names those that do not exist."""
    values = model.get("init_args") or {}
    names = {key: get_value(values, key) for key in PRETRAINED}
    names = {key: name for key, name in names.items() if isinstance(name, str) and name not in _FROM_SCRATCH}
    for key, name in names.items():
        if name == MINILM:
            encoder_path(name)
        elif Path(name).is_dir():
            continue
        elif name.count("/") > 1 or name.startswith((".", "/", "~")):
            raise UserError(f"model.{key}: {missing_model_message(name)}")
        elif not isinstance(try_to_load_from_cache(name, "config.json"), str):
            warnings.warn(f"model.{key}: {name} is not on this machine; a run will download it", stacklevel=2)
    return bool(names)
