"""Arguments of models by the names of their fields, without the groups that these are in."""

import inspect
from dataclasses import fields, is_dataclass, replace
from typing import Any


def dotted(model: type, settings: dict[str, Any]) -> dict[str, Any]:
    """Return arguments as on the command line: `encoder.layers` for `layers`; of several groups the first one."""
    parameters = inspect.signature(model).parameters
    groups = {name: each.default for name, each in parameters.items() if is_dataclass(each.default)}
    groups = dict(reversed(groups.items()))
    name_of = {field.name: f"{group}.{field.name}" for group, default in groups.items() for field in fields(default)}
    return {name if name in parameters else name_of.get(name, name): value for name, value in settings.items()}


def grouped(model: type, settings: dict[str, Any]) -> dict[str, Any]:
    """Return keyword arguments of a model, with some fields of its groups changed."""
    parameters, arguments = inspect.signature(model).parameters, {}
    for name, value in dotted(model, settings).items():
        group, _, field = name.partition(".")
        default = arguments.get(group, parameters[group].default) if field else None
        arguments[group] = replace(default, **{field: value}) if field else value
    return arguments


def build_model(model: type, settings: dict[str, Any]) -> Any:
    return model(**grouped(model, settings))
