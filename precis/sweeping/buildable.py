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
from precis.runs.run_folder import build
from precis.runs.starting_point import find_start

_FROM_SCRATCH = ("small", "graph", "hierarchical", "flat")  # encoders without pretrained weights


def check_buildable(configs: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Build model, data and callbacks of each config, to check that they accept their values.

    Models are built without allocating weights. For pretrained ones, only their existence is checked.

    Args:
        configs: labels (for messages) and configs of `precis fit`.

    Raises:
        UserError: if a value is refused; the message has label and key.
    """
    checked = set()
    for label, config in configs:
        try:
            check_ranges(config)
            check_no_keys(config)
            if config.get("start_from"):
                find_start(config)
            _check_monitors(config)
        except UserError as error:
            raise UserError(f"point {label!r}: {error}") from None
        config = copy.deepcopy(config)  # parsing changes its argument
        parts = {"model": config["model"], "data": config["data"]}
        callbacks = (config.get("trainer") or {}).get("callbacks")
        key = json.dumps([parts, callbacks], sort_keys=True, default=str)
        if key in checked:  # points that differ in their seeds alone
            continue
        checked.add(key)
        try:
            _check_callbacks(callbacks)
            if not _is_pretrained(config["model"]):
                _build_without_weights(parts)
        except UserError as error:
            raise UserError(f"point {label!r}: {error}") from None
        except REFUSALS as error:
            raise UserError(f"point {label!r}: {explain_refusal(error, config)}") from error


def _build_without_weights(parts: dict[str, Any]) -> None:
    try:
        with torch.device("meta"):
            build(parts)
    except Exception:
        build(parts)  # with weights, so that an error is that of the constructor, not of the meta device


def _check_callbacks(callbacks: Any) -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--callbacks", type=list[Callback] | Callback | None)
    parser.instantiate_classes(parser.parse_object({"callbacks": callbacks}))


def _check_monitors(config: dict[str, Any]) -> None:
    """Check that a model of the suite logs what is monitored; the models and callbacks of users may log anything."""
    model = object_named(config["model"]["class_path"])
    callbacks = (config.get("trainer") or {}).get("callbacks") or []
    callbacks = callbacks if isinstance(callbacks, list) else [callbacks]
    classes = [config["model"]["class_path"], *(callback["class_path"] for callback in callbacks)]
    known = all(name.startswith(("callbacks.", "lightning_modules.", "pytorch_lightning.")) for name in classes)
    if not known or not getattr(model, "validation_names", ()):
        return
    monitors = {"checkpoint.monitor (metric of a search)": (config.get("checkpoint") or {}).get("monitor")}
    for callback in callbacks:
        monitors[f"monitor of {callback['class_path']}"] = (callback.get("init_args") or {}).get("monitor")
    for argument, name in monitors.items():
        if str(name).startswith("val/"):
            check_monitor(argument, name, [f"val/{each}" for each in (*SCORES, *model.validation_names)])


def _is_pretrained(model: dict[str, Any]) -> bool:
    """Return whether a model has pretrained parts.

    Raises:
        UserError: if they do not exist.
    """
    values = model.get("init_args") or {}
    names = {key: name for key in PRETRAINED if isinstance(name := values.get(key), str) and name not in _FROM_SCRATCH}
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
