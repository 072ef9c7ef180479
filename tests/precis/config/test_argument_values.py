"""Values of the command line keep their meaning in classes inside classes, at any depth, as in a config file."""

import pytest
import yaml
from conftest import change_config
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
@pytest.mark.parametrize("part", ["grid", "set"])
def test_null_and_number_signs_in_a_sweep(part, tmp_path, tiny_config):
    changes = {"separator": "||", "id": "id", "skip_parts": 0}
    changes = {f"data.init_args.corpus.init_args.{name}": value for name, value in changes.items()}
    base = change_config(tiny_config, changes, tmp_path / "base.yaml")
    path = tmp_path / "sweep.yaml"
    for values in ([None], ["###"]) if part == "set" else ([None, "###", "||"],):
        varied = {part: {"data.corpus.separator": values[0] if part == "set" else values}}
        content = {"base": str(base), "set": {}, "seeds": [1]} | varied
        content["set"]["data.corpus.id"] = None
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        corpora = [point.config["data"]["init_args"]["corpus"]["init_args"] for point in compose(read_sweep(path))]
        assert [(corpus["separator"], corpus["id"]) for corpus in corpora] == [(value, None) for value in values]
