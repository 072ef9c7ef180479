"""Values of the command line keep their meaning in classes inside classes, at any depth, as in a config file."""

import pytest
import yaml
from conftest import change_config, write
from jsonargparse import ArgumentParser

import precis.config.load_classes  # noqa: F401 (sets how values are read)
from precis.sweeping.composition import compose
from precis.sweeping.grid import read_sweep


class Leaf:
    def __init__(
        self, text: str | None = "x", number: float | None = 0.5, several: list[str | None] | str | None = "x",
        mapping: dict[str, str | None] | None = None,
    ) -> None: ...  # fmt: skip


class Branch:
    def __init__(self, leaf: Leaf) -> None: ...


class Tree:
    def __init__(self, branch: Branch) -> None: ...


VALUES = [
    ("text", "null", None),
    ("text", "None", "None"),
    ("text", "###", "###"),
    ("text", "a # b", "a # b"),
    ("text", "", ""),
    ("number", "2e-3", 0.002),
    ("several", '["a", null, "it\'s"]', ["a", None, "it's"]),
    ("several", "null", None),
    ("mapping", '{"a": null, "b": "###"}', {"a": None, "b": "###"}),
]
DEPTHS = [
    {"top": Leaf},
    {"top": Branch, "top.leaf": Leaf},
    {"top": Tree, "top.branch": Branch, "top.branch.leaf": Leaf},
]


@pytest.mark.parametrize("classes", DEPTHS)
@pytest.mark.parametrize("name, value, expected", VALUES)
def test_values_mean_the_same_at_any_depth(classes, name, value, expected):
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(classes["top"], "top")
    flags = [f"--{place}={__name__}.{kind.__name__}" for place, kind in classes.items()]
    place = [*classes][-1]
    key = f"{place.replace('.', '.init_args.')}.init_args.{name}"
    for flag in ([f"--{place}.{name}", value], [f"--{key}={value}"]):
        assert parser.parse_args([*flags, *flag])[key] == expected


@pytest.mark.integration
def test_null_and_number_signs_in_a_sweep(tmp_path, tiny_config):
    corpus = "data.init_args.corpus.init_args"
    base = change_config(tiny_config, {f"{corpus}.separator": "||", f"{corpus}.id": "id"}, tmp_path / "base.yaml")
    grid = {"set": {"data.corpus.id": None}, "grid": {"data.corpus.separator": [None, "###", "||"]}}
    fixed = {"set": {"data.corpus.id": None, "data.corpus.separator": "###"}, "seeds": [1]}
    for content, values in ((grid, [None, "###", "||"]), (fixed, ["###"])):
        path = write(tmp_path / "sweep.yaml", {"base": str(base), **content})
        corpora = [point.config["data"]["init_args"]["corpus"]["init_args"] for point in compose(read_sweep(path))]
        assert [(corpus["separator"], corpus["id"]) for corpus in corpora] == [(value, None) for value in values]


COMMANDS = [
    "fit --config base.yaml --trainer trainer.yaml --data.corpus=corpus.yaml --model.decoding=decoding.yaml",
    "fit --config base.yaml --optimizer optimizer.yaml --lr_scheduler schedule.yaml --trainer.callbacks+=callback.yaml",
    "fit --config=base.yaml --data=data.yaml --dry-run",
    "baseline lead --corpus=corpus.yaml --out=lead.jsonl",
    "graph text.txt --paragraphs=paragraphs.yaml --html=graph.html",
    "evaluate outputs.jsonl --fields fields.yaml --metrics=rouge --resamples=9",
    "sweep sweep.yaml --launcher=slurm --profile profile.yaml --dry-run",
]


@pytest.mark.integration
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_is_named_without_its_folder(command, tiny_config, tmp_path, precis, monkeypatch):
    """In the working folder there is a file for each option, and modules of these names that must not be imported."""
    base = yaml.safe_load(tiny_config.read_text(encoding="utf-8"))
    base["trainer"] = {"max_steps": 1, "accelerator": "cpu", "enable_progress_bar": False}
    files = {
        "base": base,
        "trainer": base["trainer"],
        "data": base["data"],
        "corpus": base["data"]["init_args"]["corpus"],
        "decoding": {"beam_size": 3, "min_length": 2, "max_length": 8},
        "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}},
        "schedule": {"class_path": "torch.optim.lr_scheduler.ConstantLR"},
        "callback": {"class_path": "callbacks.CoverageAnnealing", "init_args": {"start_step": 2}},
        "paragraphs": {"max_paragraphs": 4, "sentences": 1},
        "fields": {"summary": "text"},
        "sweep": {"base": "base.yaml", "seeds": [1]},
        "profile": {"minutes": 60},
    }
    for name, content in files.items():
        write(tmp_path / f"{name}.yaml", content)
    for name in ("trainer", "optimizer", "profile", "corpus"):
        write(tmp_path / f"{name}.py", "raise SystemExit('imported')\n")
    write(tmp_path / "text.txt", "The otter sleeps.\n\nIt eats a fish. It swims.")
    write(tmp_path / "outputs.jsonl", '{"id": "a", "text": ["an otter"], "references": [["an otter"]]}\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    precis(*command.split()).succeeded()
