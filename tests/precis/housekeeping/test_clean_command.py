"""`precis clean`: what it removes, and what it leaves."""

import os
import time
from pathlib import Path

import pytest

from datamodules.cache_folder import KINDS, list_entries
from datamodules.corpora.corpus import build_documents
from datamodules.corpora.files import Files

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
