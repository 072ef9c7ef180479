"""Values for the data that the model's would replace in silence."""

import inspect
from dataclasses import fields, is_dataclass
from itertools import product
from pathlib import Path

import pytest
from conftest import change_config

import datamodules
import lightning_modules
from datamodules.documents import UserError
from lightning_modules.summarizer import Summarizer
from precis.config.run_arguments import LINKED, check_linked
from precis.training.training import fit_parser


@pytest.mark.integration
@pytest.mark.parametrize("config, name, value", [
    ("rstformer/docstrings", "ablation", "ria"),
    ("bertsum/scitldr", "checkpoint", "elsewhere"),
])  # fmt: skip
def test_linked_arguments_are_refused_for_the_data_and_accepted_for_the_model(config, name, value, tmp_path):
    config, parser = Path(f"experiments/configs/{config}.yaml"), fit_parser()
    base = f"--config={config}"
    for flag in ([f"--data.{name}={value}"], [f"--data.{name}", value], [f"--data.init_args.{name}={value}"]):
        with pytest.raises(UserError, match=rf"--data\..*{name}: the data takes it .* give --model\.{LINKED[name]}"):
            check_linked([base, *flag], parser.parse_args([base, *flag]))
    given = [base, f"--model.{LINKED[name]}={value}"]
    parsed = parser.parse_args(given)
    check_linked(given, parsed)
    assert str(parsed.data.init_args[name]) == value
    path = change_config(config, {f"data.init_args.{name}": value}, tmp_path / "config.yaml")
    with pytest.raises(UserError, match=rf"config\.yaml: data\.{name}: the data takes it from the model; give model"):
        check_linked([f"--config={path}"], parser.parse_args([f"--config={path}"]))


def arguments_of(kind: type) -> set[str]:
    """Return the arguments of a class and of its base classes, and the fields of those that are groups."""
    suite = ("datamodules.", "lightning_modules.")
    constructors = [base.__init__ for base in kind.__mro__ if base.__module__.startswith(suite)]
    parameters = {name: each for one in constructors for name, each in inspect.signature(one).parameters.items()}
    groups = [each.default for each in parameters.values() if is_dataclass(each.default)]
    return set(parameters) - {"self", "shared"} | {field.name for group in groups for field in fields(group)}


def test_every_argument_that_a_model_shares_with_its_data_is_linked():
    models = [getattr(lightning_modules, name) for name in lightning_modules.__all__]
    modules = [getattr(datamodules, name) for name in datamodules.__all__]
    shared = set()
    for model, data in product(models, modules):
        if issubclass(model, Summarizer) and getattr(data, "batch_type", None) is model.batch_type:
            shared |= arguments_of(model) & arguments_of(data)
    assert shared | {"inventory"} == set(LINKED)  # of discourse parsers, whose data has no batch type
