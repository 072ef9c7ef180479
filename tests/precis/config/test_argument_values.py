"""Values keep their meaning at any depth, those that the model links are refused, and parsers have names."""

import inspect
from dataclasses import fields, is_dataclass
from itertools import product
from pathlib import Path

import pytest
import torch
import yaml
from conftest import change_config, write, write_sweep
from jsonargparse import ArgumentParser
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import Timer

import datamodules
import lightning_modules
import precis.config.load_classes  # noqa: F401 (sets how values are read)
from datamodules.corpora import Files
from datamodules.discourse.parses import ParseRequest
from datamodules.documents import UserError
from datamodules.rstformer import RSTformerData
from lightning_modules.discourse_parser.parser import DiscourseParser
from lightning_modules.summarizer import Summarizer
from precis.config.parsers import load_parser, provide_parsers
from precis.config.run_arguments import LINKED, check_linked
from precis.sweeping.composition import compose
from precis.sweeping.grid import read_sweep
from precis.training.training import fit_parser


class Leaf:
    def __init__(
        self, text: str | None = "x", number: float | None = 0.5, several: list[str | None] | str | None = "x",
        mapping: dict[str, str | None] | None = None,
    ) -> None: ...  # fmt: skip


class Branch:
    def __init__(self, leaf: Leaf) -> None: ...


class Tree:
    def __init__(self, branch: Branch) -> None: ...


@pytest.mark.parametrize("classes", [
    {"top": Leaf}, {"top": Branch, "top.leaf": Leaf}, {"top": Tree, "top.branch": Branch, "top.branch.leaf": Leaf},
])  # fmt: skip
@pytest.mark.parametrize("name, value, expected", [
    ("text", "null", None), ("text", "None", "None"), ("text", "###", "###"), ("text", "a # b", "a # b"),
    ("text", "", ""), ("number", "2e-3", 0.002), ("several", "null", None),
    ("several", '["a", null, "it\'s"]', ["a", None, "it's"]),
    ("mapping", '{"a": null, "b": "###"}', {"a": None, "b": "###"}),
])  # fmt: skip
def test_values_mean_the_same_at_any_depth(classes, name, value, expected):
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(classes["top"], "top")
    flags = [f"--{place}={__name__}.{kind.__name__}" for place, kind in classes.items()]
    place = [*classes][-1]
    key = f"{place.replace('.', '.init_args.')}.init_args.{name}"
    for flag in ([f"--{place}.{name}", value], [f"--{key}={value}"]):
        assert parser.parse_args([*flags, *flag])[key] == expected


def test_a_default_that_is_an_enumeration_of_texts_is_written():
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(Timer, "timer")
    assert "interval: step" in parser.dump(parser.parse_args(["--timer=Timer"]))


@pytest.mark.integration
def test_null_and_number_signs_in_a_sweep(tmp_path, tiny_config):
    corpus, several = "data.init_args.corpus.init_args", [None, "###", "||"]
    base = change_config(tiny_config, {f"{corpus}.separator": "||", f"{corpus}.id": "id"}, tmp_path / "base.yaml")
    grid = {"set": {"data.corpus.id": None}, "grid": {"data.corpus.separator": several}}
    fixed = {"set": {"data.corpus.id": None, "data.corpus.separator": "###"}, "seeds": [1]}
    for content, values in ((grid, several), (fixed, ["###"])):
        points = compose(read_sweep(write_sweep(tmp_path, base, **content)))
        corpora = [point.config["data"]["init_args"]["corpus"]["init_args"] for point in points]
        assert [(corpus["separator"], corpus["id"]) for corpus in corpora] == [(value, None) for value in values]


@pytest.mark.integration
@pytest.mark.parametrize("command", [
    "fit --config base.yaml --trainer trainer.yaml --data.corpus=corpus.yaml --model.decoding=decoding.yaml",
    "fit --config base.yaml --optimizer optimizer.yaml --lr_scheduler schedule.yaml --trainer.callbacks+=callback.yaml",
    "fit --config=base.yaml --optimizer=SGD --lr_scheduler=ReduceLROnPlateau --lr_scheduler.monitor=val/loss",
    "baseline lead --corpus=corpus.yaml --out=lead.jsonl",
    "evaluate outputs.jsonl --fields fields.yaml --metrics=rouge --resamples=9",
])  # fmt: skip
def test_a_file_is_named_without_its_folder(command, tiny_config, tmp_path, precis, monkeypatch):
    """In the working folder there is a file for each option, and modules of these names that must not be imported."""
    base = yaml.safe_load(tiny_config.read_text(encoding="utf-8"))
    base["trainer"] = {"max_steps": 1, "accelerator": "cpu", "enable_progress_bar": False}
    files = {
        "base": base, "trainer": base["trainer"], "corpus": base["data"]["init_args"]["corpus"],
        "decoding": {"beam_size": 3, "min_length": 2, "max_length": 8},
        "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}},
        "schedule": {"class_path": "torch.optim.lr_scheduler.ConstantLR"},
        "callback": {"class_path": "callbacks.CoverageAnnealing", "init_args": {"start_step": 2}},
        "fields": {"summary": "text"},
    }  # fmt: skip
    for name, content in files.items():
        write(tmp_path / f"{name}.yaml", content)
    for name in ("trainer", "optimizer", "corpus"):
        write(tmp_path / f"{name}.py", "raise SystemExit('imported')\n")
    write(tmp_path / "outputs.jsonl", '{"id": "a", "text": ["an otter"], "references": [["an otter"]]}\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    precis(*command.split()).succeeded()


@pytest.mark.integration
@pytest.mark.parametrize("config, name, value", [
    ("rstformer/docstrings", "ablation", "ria"), ("bertsum/scitldr", "checkpoint", "elsewhere"),
])  # fmt: skip
def test_linked_arguments_are_refused_for_the_data_and_accepted_for_the_model(config, name, value, tmp_path):
    config, parser = Path(f"experiments/configs/{config}.yaml"), fit_parser()
    base = f"--config={config}"
    for flag in ([f"--data.{name}={value}"], [f"--data.{name}", value], [f"--data.init_args.{name}={value}"]):
        with pytest.raises(UserError, match=rf"--data\..*{name}: the data takes it .* give --model\.{LINKED[name]}"):
            check_linked([base, *flag], parser.parse_args([base, *flag]))
    arguments = [base, f"--model.{LINKED[name]}={value}"]
    parsed = parser.parse_args(arguments)
    check_linked(arguments, parsed)
    assert str(parsed.data.init_args[name]) == value
    path = change_config(config, {f"data.init_args.{name}": value}, tmp_path / "config.yaml")
    with pytest.raises(UserError, match=rf"config\.yaml: data\.{name}: the data takes it from the model; give model"):
        check_linked([f"--config={path}"], parser.parse_args([f"--config={path}"]))


def test_a_changed_decoding_option_keeps_the_others_of_the_model():
    # Li et al. 2020 for Multi-News, Liu and Lapata 2019 for CNN/DailyMail, and Zhang et al. 2020
    for name, expected in {"GraphSum": (60, 300, 0.6), "BertSumAbs": (1, 128, 0.95), "Pegasus": (1, 128, 0.8)}.items():
        data = [f"--data=datamodules.{name}Data", "--data.corpus=datamodules.corpora.Docstrings"]
        parsed = fit_parser().parse_args([f"--model=lightning_modules.{name}", "--model.decoding.beam_size=2", *data])
        options = parsed.model.init_args.decoding
        assert (options.min_length, options.max_length, options.alpha) == expected and options.beam_size == 2


def arguments_of(kind: type) -> set[str]:
    """Return the arguments of a class and of its base classes, and the fields of those that are groups."""
    constructors = [base.__init__ for base in kind.__mro__ if base.__module__.startswith(("datamod", "lightning_m"))]
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


@pytest.mark.integration
def test_a_parser_of_a_run_is_loaded_from_each_of_its_places(tmp_path, run_folder):
    parser = DiscourseParser(hidden_size=8, fit_size=4)
    trainer = Trainer(accelerator="cpu", logger=False, max_epochs=0, enable_checkpointing=False)
    trainer.strategy.connect(parser)
    trainer.save_checkpoint(tmp_path / "parser" / "checkpoints" / "best.ckpt", weights_only=True)
    parser.save(tmp_path / "saved")
    for place in (tmp_path / "parser", tmp_path / "parser" / "checkpoints" / "best.ckpt", tmp_path / "saved"):
        found = load_parser(str(place), "nucleus", 7)
        assert (found.rows, found.band, found.settings) == ("nucleus", 7, parser.settings) and not found.training
        for name, value in found.state_to_keep().items():
            torch.testing.assert_close(value, parser.state_to_keep()[name], atol=1e-3, rtol=1e-3)
    with pytest.raises(UserError, match="no checkpoint of a discourse parser"):
        load_parser(str(run_folder))


@pytest.mark.integration
def test_a_named_parser_loses_no_probability_whatever_the_rule(tmp_path, corpus_files):
    """Against all nodes one by one: in a long text, nodes of which each is improbable are many."""
    torch.manual_seed(0)
    DiscourseParser(hidden_size=8, fit_size=2).save(tmp_path / "saved")
    text = "a b c d . " * 60
    edus = tuple((start, start + 9) for start in range(0, 600, 10))
    request = ParseRequest("long", text, edus, ((0, 600),), edus)
    for rows in ("side", "nucleus"):
        exact = DiscourseParser.load(tmp_path / "saved", rows=rows, band=59, min_prob=0).parse(request).dense()
        named = load_parser(str(tmp_path / "saved"), rows, 59).parse(request)
        data = RSTformerData(Files(**corpus_files), parser=str(tmp_path / "saved"), rows=rows, half_width=59)
        provide_parsers(data)
        for found in (named, data.parser.parse(request)):
            assert found.rows == rows
            assert found.band(59).sum().item() == pytest.approx(exact.sum().item(), rel=0.01)
            assert found.dense().sum((1, 2)).sub(exact.sum((1, 2))).abs().max() < 0.02 * exact.sum((1, 2)).max()
