"""The documentation names what exists: paths, links, targets of make, and commands that their parsers accept."""

import json
import re
import shlex
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml
from conftest import write
from jsonargparse import ArgumentParser
from packaging.utils import canonicalize_name

from precis.config.command_table import COMMANDS, TRAINING, load_command
from precis.sweeping.composition import compose
from precis.sweeping.grid import read_sweep
from precis.training.training import fit_parser

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
PACKAGES = ("lightning_modules", "datamodules", "callbacks", "experiments", "benchmarks", "tests", "docs", "precis")
# other first words of commands in the pages
PLAIN = ("cd", "source", "pip", "make", "python", "cat", "sbatch", "wandb")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.S | re.M)


def commands(page: Path) -> list[str]:
    """Return the command lines of a page's shell blocks; lines of a here-document are left out."""
    lines = []
    for block in blocks(page, "bash"):
        block = re.sub(r"\\\n\s*", "", re.sub(r"<<(\w+)\n.*?^\1$", "", block, flags=re.S | re.M))
        lines += [line.split("  #")[0].strip() for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


EXAMPLES = {command.example for command in COMMANDS.values()}  # those that `--help` shows
EVERY = sorted({line for page in PAGES for line in commands(page)} | EXAMPLES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_paths_and_links_lead_to_files_and_shown_records_can_be_read(page):
    text = page.read_text(encoding="utf-8")
    named = re.findall(rf"`((?:{'|'.join(PACKAGES)})/[\w/.-]*)`", text)
    targets = [target for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text) if "://" not in target]
    paths = [ROOT / name for name in named] + [page.parent / target for target in targets]
    assert [path for path in paths if not path.exists()] == []
    for block in blocks(page, "json"):
        assert all(isinstance(json.loads(line), dict) for line in block.splitlines())
    for block in blocks(page, "yaml"):
        assert "--8<--" in block or isinstance(yaml.safe_load(block), dict)


def test_the_readme_is_short_and_every_page_is_in_the_navigation_of_the_site_which_asks_no_other_server():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 100
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {page.relative_to(ROOT).as_posix().removeprefix("docs/") for page in PAGES} - {"README.md"}
    assert pages - set(re.findall(r": ([\w/]+\.md)$", text, flags=re.M)) == set()
    # Material loads fonts unless they are off, and a script of mermaid's for its diagrams
    assert yaml.safe_load(text)["theme"]["font"] is False
    assert not [page for page in PAGES if blocks(page, "mermaid")]


@pytest.mark.integration
@pytest.mark.parametrize("line", EVERY)
def test_a_command_is_accepted_by_its_parser(line, monkeypatch, tmp_path):
    program, *words = shlex.split(re.split(r" [<>|] ", line)[0])
    if program != "precis" or words == ["--help"]:
        assert program in (*PLAIN, "precis"), line
        assert program != "python" or words[0] == "-m" or (ROOT / words[0]).is_file()
        return
    (tmp_path / "profile.yaml").write_text("minutes: 60\n", encoding="utf-8")
    command, *arguments = [str(tmp_path / word) if word == "profile.yaml" else word for word in words]
    assert command in COMMANDS, line
    monkeypatch.chdir(ROOT)
    if "bag_of_words.BagOfWords" in line:
        monkeypatch.chdir(ROOT / "docs" / "examples")
        monkeypatch.syspath_prepend(Path.cwd())  # as the command does with the working folder
    if command in TRAINING and "--run" in arguments:
        at = arguments.index("--run")
        del arguments[at : at + 2]  # a folder that is not here
        config = "experiments/configs/pointer_generator/docstrings.yaml"
        arguments = [f"--config={config}", *(word for word in arguments if word != "--trust")]
    if command == "sweep" and arguments[0].endswith(".yaml"):  # another test composes all shipped sweeps
        assert Path(arguments[0]).is_file()
    if command in TRAINING and "--checkpoint" not in arguments:
        fit_parser(command).parse_args(arguments)
    else:
        stop = patch.object(ArgumentParser, "parse_args", autospec=True, side_effect=StopIteration)
        with stop as stopped, pytest.raises(StopIteration):
            load_command(command)(arguments)
        parser, arguments = stopped.call_args.args  # arguments as the command changes them before it parses them
        parser.parse_args(arguments)


def test_snippets_make_targets_and_functions_that_are_named_exist():
    text = (ROOT / "docs" / "add_a_paper.md").read_text(encoding="utf-8")
    included = re.findall(r'--8<-- "([\w/.]+?)(?::(\w+))?"', text)
    assert len(included) == 6
    for path, section in included:
        code = (ROOT / path).read_text(encoding="utf-8")
        assert not section or all(f"--8<-- [{end}:{section}]" in code for end in ("start", "end"))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))
    for page in PAGES:
        named = re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)", page.read_text(encoding="utf-8"), flags=re.M)
        assert {name for pair in named for name in pair if name} <= targets, page
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([A-Z]\w+(?:\.\w+)?|[a-z]+(?:_[a-z]+)+)`", text))
    texts = (path.read_text(encoding="utf-8") for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    defined = {name for text in texts for name in re.findall(r"^ *(?:class|def) (\w+)", text, flags=re.M)}
    defined |= {"LightningModule", "LightningDataModule", "loss_weights", "lightning_modules"}
    assert len(named) > 20 and not {name for name in named if not defined.issuperset(name.split("."))}


@pytest.mark.integration
def test_the_sweep_file_that_is_shown_can_be_composed(tmp_path, monkeypatch):
    page = ROOT / "docs" / "sweeps.md"
    (shown,) = blocks(page, "yaml")
    path = write(tmp_path / "shown.yaml", shown)
    monkeypatch.chdir(ROOT)
    assert len(compose(read_sweep(path))) == 2 * 4 * 3
    keys = set(re.findall(r"^\| `(\w+)` \|", page.read_text(encoding="utf-8"), flags=re.M))
    assert keys == {"base", "set", "grid", "zip", "points", "search", "seeds", "after"}


def test_licences_of_all_pinned_packages_are_listed():
    pins = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), flags=re.M)
    table = (ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w.-]+) +\| \S+ +\| (\S.*?) +\|", table, flags=re.M)
    licences = {canonicalize_name(name): licence for name, licence in rows}
    assert [name for name in pins if canonicalize_name(name) not in licences] == [], "run make audit"
    assert len(pins) > 100 and "UNKNOWN" not in licences.values()
