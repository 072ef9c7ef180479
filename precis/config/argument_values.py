"""How jsonargparse reads the values of command lines and config files; importing this module sets it."""

import json
from typing import Any

import yaml
from jsonargparse import _typehints, set_loader, set_parsing_settings
from jsonargparse._loaders_dumpers import yaml_load

from precis.files.yaml_files import load_yaml

_as_namespace = _typehints.subclass_spec_as_namespace


def _load(text: str) -> Any:
    """Return the value that a text has in YAML; a text such as `###`, which YAML ignores as a comment, is itself."""
    if "&" in text or "!" in text:
        load_yaml(text)  # checks how far aliases unfold, and that tags fit
    value = yaml_load(text)
    return text if value is None and "\n" not in text and text.lstrip().startswith("#") else value


def _with_json_values(value: Any, *arguments: Any) -> Any:
    """Call `subclass_spec_as_namespace` with a value of a class inside a class as JSON.

    jsonargparse hands it on as the text that Python prints, which for null is "None", a string.
    """
    to_class = isinstance(value, _typehints.NestedArg) and "." in value.key.removeprefix("dict_kwargs.")
    if to_class and not isinstance(value.val, str):
        value = value._replace(val=json.dumps(value.val, default=str))
    return _as_namespace(value, *arguments)


set_parsing_settings(docstring_parse_attribute_docstrings=True)  # documentation beside the fields of dataclasses
set_loader("yaml", _load, exceptions=(yaml.YAMLError,))
_typehints.subclass_spec_as_namespace = _with_json_values
