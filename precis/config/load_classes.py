"""Import the classes that configs name by short names, and set how jsonargparse reads the values of their arguments."""

import json
from types import ModuleType
from typing import Any, Literal

import yaml
from jsonargparse import ArgumentParser, _typehints, set_loader, set_parsing_settings
from jsonargparse._loaders_dumpers import yaml_load

import callbacks
import datamodules.corpora
import lightning_modules
from datamodules.corpora.corpus import Corpus
from precis.files.data_files import load_yaml


def load_classes(*packages: ModuleType) -> None:
    """Import the public classes of packages, by default the suite's, so that jsonargparse finds them by short names."""
    for package in packages or (callbacks, datamodules, datamodules.corpora, lightning_modules):
        for name in package.__all__:
            getattr(package, name)  # imports its module


def add_corpus_arguments(parser: ArgumentParser, on_bad_record: str = "raise") -> None:
    """Add the options that name a corpus, and those that say how its documents are read."""
    add = parser.add_argument
    load_classes(datamodules.corpora)  # so that --corpus takes short names
    parser.add_subclass_arguments(Corpus, "corpus", required=False)
    add("--language", type=str, default="en", help="ISO code of the language; xx for any")
    add("--on_bad_record", type=Literal["raise", "skip"], default=on_bad_record, help="what to do with invalid records")
    add("--num_proc", type=int, default=1, help="number of processes for sentence splitting")


_original_function = _typehints.subclass_spec_as_namespace  # before it is replaced below


def _load(text: str) -> Any:
    """Return the value of a text as YAML; a text such as `###`, which YAML takes for a comment, stays as it is."""
    if "&" in text or "!" in text:
        load_yaml(text)  # raises an error for aliases (&) that expand too far, and tags that do not fit (!!int x)
    value = yaml_load(text)
    return text if value is None and "\n" not in text and text.lstrip().startswith("#") else value


def _with_json_values(value: Any, *arguments: Any) -> Any:
    """Wrap a function of jsonargparse to pass values of nested options as JSON: its own `str` makes null a string."""
    is_nested = isinstance(value, _typehints.NestedArg) and "." in value.key.removeprefix("dict_kwargs.")
    if is_nested and not isinstance(value.val, str):
        value = value._replace(val=json.dumps(value.val, default=str))
    return _original_function(value, *arguments)


set_parsing_settings(docstring_parse_attribute_docstrings=True)  # documentation beside the fields of dataclasses
yaml.SafeDumper.add_multi_representer(str, yaml.SafeDumper.represent_str)  # enumerations of texts: `Timer.interval`
set_loader("yaml", _load, exceptions=(yaml.YAMLError,))
_typehints.subclass_spec_as_namespace = _with_json_values
