"""A small part of `make harden`: no damaged file ends in a traceback or costs a record, no kill costs a run."""

import os
import random
import subprocess
import sys
from itertools import cycle
from pathlib import Path

import pytest
import yaml
from crash_points import CacheCrashes, RunCrashes, problems
from damaged_models import checkpoint_cases, count_models, export_cases
from damaged_records import count_files
from files import ALL_DAMAGES, MAX_MEMORY, count_damaged_files
from hostile_configs import count_configs

from datamodules.corpora.files import Files
from precis.config.load_classes import load_classes

pytestmark = pytest.mark.integration

WRONG = ("tracebacks", "hangs", "lost", "ran", "unexplained")


@pytest.fixture
def base(tiny_config, tmp_path, monkeypatch) -> dict:
    monkeypatch.chdir(tmp_path)
    return yaml.safe_load(tiny_config.read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_damaged_records_are_named_and_a_reader_that_loses_records_is_counted(kind, tmp_path, monkeypatch):
    counts = count_files(kind, files=4, number=60, seed=0, folder=tmp_path)
    assert counts["records"] == 240 and counts["damaged"] > 30
    assert not any(counts[name] for name in WRONG), counts
    whole = Files.records
    monkeypatch.setattr(Files, "records", lambda corpus, split: list(whole(corpus, split))[:-1])
    assert count_files(kind, files=2, number=20, seed=0, folder=tmp_path)["lost"] > 0


@pytest.mark.parametrize("damage, kind", zip(ALL_DAMAGES, cycle(["jsonl", "csv"])))
def test_records_of_damaged_files_are_read_or_named_in_little_memory(damage, kind, tmp_path):
    counts = count_damaged_files(damage, kind, files=1, number=20, seed=0, folder=tmp_path)
    assert not any(counts[name] for name in WRONG), counts
    assert counts["memory"] <= MAX_MEMORY and counts["files"] == 1
    if damage in ("none", "byte order mark", "lines that end with CR LF", "gzip", "the same id"):
        assert counts["read"] == 20


def test_hostile_configs_are_refused_in_a_line(trained, base, tmp_path):
    counts, wrong = count_configs(base, trained, number=24, seed=0, folder=tmp_path)
    assert counts["cases"] == 24 and counts["refused"] > 12
    assert not any(counts[name] for name in WRONG), wrong


def test_sweep_folders_of_somebody_else_run_and_overwrite_nothing(base, tmp_path):
    for name in ("optuna", "submitit"):
        pytest.importorskip(name)
    from sweep_folders import PROBLEMS, count_sweep_folders

    counts, wrong = count_sweep_folders(base, cases=12, seed=0, folder=tmp_path / "sweeps")
    assert counts["cases"] == 12 and not any(counts[name] for name in PROBLEMS), wrong


@pytest.mark.parametrize("kind", ["exports", "checkpoints"])
def test_damaged_models_are_refused_in_a_line(kind, trained, tmp_path, precis):
    rng, best = random.Random(0), "checkpoints/best.ckpt"
    whole, cases = trained, [(best, content) for content in checkpoint_cases(trained / best, rng, number=2)]
    if kind == "exports":
        whole = tmp_path / "exported"
        assert precis("export", trained, "--out", whole).status == 0
        cases = list(export_cases(whole, rng, number=2))
    counts, wrong = count_models(kind, whole, rng.sample(cases, 24), tmp_path)
    assert counts["cases"] == 24 and counts["refused"] > 6 and not wrong, wrong


def test_a_script_of_make_harden_starts_from_any_folder(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, Path(__file__).parent / "sweep_folders.py", "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "usage:" in done.stdout, done.stderr


@pytest.mark.parametrize("kind, kills", [(RunCrashes, 4), (CacheCrashes, 6)], ids=["run", "cache"])
def test_kills_at_file_operations_leave_nothing_lost(kind, kills, tmp_path, monkeypatch):
    monkeypatch.setenv("PRECIS_CACHE", str(tmp_path / "documents"))
    monkeypatch.setattr("precis.runs.run_folder._git", lambda *_: None)  # which asks other processes
    load_classes()
    crashes = kind(tmp_path)
    count = len(crashes.operations)
    assert count > 50  # that is, operations are seen
    numbers = range(1, count + 1, count // kills)
    assert list(filter(None, problems(crashes, numbers))) == []
