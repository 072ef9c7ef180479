"""What the documentation names exists."""

import ast
import re
from pathlib import Path

import pytest

from experiments.sweeping.composition import compose
from experiments.sweeping.grid import read_sweep

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
PACKAGES = ("lightning_modules", "datamodules", "callbacks", "experiments", "benchmarks", "tests")
PYTHON = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]


def defined_names() -> set[str]:
    """Return the classes and functions of the suite, methods as `Class.method`."""
    names = set()
    for path in PYTHON:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            if isinstance(node, ast.ClassDef):
                names |= {f"{node.name}.{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_paths_that_are_named_exist(page):
    named = re.findall(rf"`((?:{'|'.join(PACKAGES)})/[\w/.-]*)`", page.read_text(encoding="utf-8"))
    missing = [name for name in named if not (ROOT / name).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_to_files(page):
    targets = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    missing = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not missing


def test_the_sweep_file_that_is_shown_can_be_composed(tmp_path, monkeypatch):
    text = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```yaml\n(.*?)```", text, flags=re.S)
    path = tmp_path / "shown.yaml"
    path.write_text(shown, encoding="utf-8")
    monkeypatch.chdir(ROOT)
    assert len(compose(read_sweep(path))) == 2 * 4 * 3
    keys = set(re.findall(r"^\| `(\w+)` \|", text, flags=re.M))
    assert keys == {"base", "set", "grid", "zip", "points", "random", "seeds", "after"}


def test_functions_that_the_architecture_names_exist():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([A-Z]\w+(?:\.\w+)?|[a-z]+(?:_[a-z]+)+)`", text))
    allowed = {"LightningModule", "LightningDataModule", "loss_weights", "lightning_modules"}
    unknown = named - defined_names() - allowed
    assert len(named) > 20 and not unknown
