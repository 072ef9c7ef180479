"""`precis clean`: what it removes, and what it leaves. `precis doctor`: what is installed, and what is missing."""

import json
import os
import time
from importlib import metadata
from pathlib import Path

import pytest

from datamodules.cache_folder import KINDS, list_entries
from datamodules.corpora.corpus import build_documents
from datamodules.corpora.files import Files
from precis.housekeeping.doctor import check_requirements

DIGEST = "0123456789abcdef01234567"


def age(path: Path, days: float) -> None:
    then = time.time() - days * 86400
    for file in [path, *path.rglob("*")] if path.is_dir() else [path]:
        os.utime(file, (then, then))


@pytest.fixture
def folder(tmp_path, corpus_files):
    """A cache with a recent and two old entries, and files that are no entries."""
    folder = tmp_path / "cache"
    build_documents(Files(**corpus_files), "test", folder)
    for name in (f"features/{DIGEST}.arrow", f"text/{DIGEST}/vocab.txt"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(b"x" * 5000)
        age(folder / name, 40)
    age(folder / "text" / DIGEST, 40)
    (folder / "mine").mkdir()
    for name in ("mine/notes.txt", "notes.txt", "features/notes.arrow"):
        (folder / name).write_text("mine", encoding="utf-8")
        age(folder / name, 400)
    return folder


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() and path.name[0] != "."}


def test_what_training_builds_is_recognized(trained, cache):
    kinds = {entry.kind for entry in list_entries(cache)}
    assert {"documents", "features", "tokenizers"} <= kinds <= set(KINDS)


def test_old_entries_are_removed_and_nothing_else(folder, precis):
    before = names(folder)
    done = precis("clean", "--cache_dir", folder, "--older_than", "0")
    assert done.status == 0 and "--delete" in done.out and names(folder) == before  # unless asked
    assert precis("clean", "--cache_dir", folder, "--delete").status == 0
    assert before - names(folder) == {f"features/{DIGEST}.arrow", f"text/{DIGEST}/vocab.txt"}
    assert not (folder / "text" / DIGEST).exists()


def test_only_large_ones_of_a_kind_are_removed(folder, corpus_files, precis):
    before = names(folder)
    assert precis("clean", "--cache_dir", folder, "--larger_than", "1", "--delete").status == 0
    assert precis("clean", "--cache_dir", folder, "--kinds", "[documents]", "--delete").status == 0
    assert names(folder) == before
    assert precis("clean", "--cache_dir", folder, "--kinds", "[documents]", "--older_than=0", "--delete").status == 0
    assert {Path(name).name for name in before - names(folder)} == {"documents.arrow", "manifest.json"}
    assert len(build_documents(Files(**corpus_files), "test", folder)) == 7  # what was removed is built again


def test_a_run_folder_is_refused(run_folder, precis):
    before = names(run_folder)
    done = precis("clean", "--cache_dir", run_folder, "--older_than", "0", "--delete")
    assert done.status == 1 and "run folder" in done.err and names(run_folder) == before


def test_the_report_names_versions_devices_caches_and_the_parser(precis, cache):
    done = precis("doctor", "--json")
    report = json.loads(done.out)
    assert report["versions"]["torch"] == metadata.version("torch")
    assert "CPU core" in report["devices"][0] and str(cache) in report["caches"]
    assert "default because" in report["parser"] and "minilm" in report["extras"]
    assert not report["problems"] and done.status == 0
    table = precis("doctor").out
    assert metadata.version("torch") in table and "everything that is required is installed" in table


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, precis):
    lines = ["torch>=999", "nothing-of-this-name>=1", 'nor-of-this; extra == "minilm"', 'rich; extra == "lora"']
    monkeypatch.setattr(metadata, "requires", lambda _: lines)
    required, extras = check_requirements()
    assert set(required) == {"torch", "nothing-of-this-name"}
    assert extras["minilm"] == "lacks nor-of-this: pip install 'precis-suite[minilm]'"
    assert extras["lora"] == "installed"
    done = precis("doctor", "--json")
    assert done.status == 1 and len(json.loads(done.out)["problems"]) == 2
