"""`precis clean`, `precis doctor` and `precis init`: what they remove, report and write."""

import json
import os
import time
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from conftest import write_lines

from datamodules.cache_folder import KINDS, list_entries
from datamodules.corpora.corpus import build_documents
from datamodules.corpora.files import Files
from precis.housekeeping.doctor import check_requirements
from precis.housekeeping.init import MODELS
from precis.training.training import fit_parser

DIGEST = "0123456789abcdef01234567"
OLD = {f"features/{DIGEST}.arrow", f"text/{DIGEST}/vocab.txt"}


def age(path: Path, days: float) -> None:
    then = time.time() - days * 86400
    os.utime(path, (then, then))


@pytest.fixture
def folder(tmp_path, corpus_files):
    """A cache with a recent and two old entries, and files that are no entries."""
    folder = tmp_path / "cache"
    build_documents(Files(**corpus_files), "test", folder)
    (folder / "mine").mkdir()
    (folder / "text" / DIGEST).mkdir(parents=True)
    (folder / "features").mkdir()
    for name in (*OLD, "mine/notes.txt", "notes.txt", "features/notes.arrow"):
        (folder / name).write_bytes(b"x" * 5000)
        age(folder / name, 40 if name in OLD else 400)
    age(folder / "text" / DIGEST, 40)
    return folder


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() and path.name[0] != "."}


def test_what_training_builds_is_recognized_and_old_entries_are_removed(trained, cache, folder, precis):
    assert {"documents", "features", "tokenizers"} <= {entry.kind for entry in list_entries(cache)} <= set(KINDS)
    before = names(folder)
    done = precis("clean", "--cache_dir", folder, "--older_than", "0").succeeded()
    assert "--delete" in done.out and names(folder) == before  # unless asked
    assert precis("clean", "--cache_dir", folder, "--delete").status == 0
    assert before - names(folder) == OLD and not (folder / "text" / DIGEST).exists()


def test_only_large_ones_of_a_kind_are_removed(folder, corpus_files, run_folder, precis):
    before = names(folder)
    for options in (["--larger_than", "1"], ["--kinds", "[documents]"]):
        assert precis("clean", "--cache_dir", folder, *options, "--delete").status == 0
        assert names(folder) == before
    precis("clean", "--cache_dir", folder, "--kinds", "[documents]", "--older_than=0", "--delete").succeeded()
    assert {Path(name).name for name in before - names(folder)} == {"documents.arrow", "manifest.json"}
    assert len(build_documents(Files(**corpus_files), "test", folder)) == 7  # what was removed is built again
    before = names(run_folder)
    precis("clean", "--cache_dir", run_folder, "--older_than", "0", "--delete").refused("run folder")
    assert names(run_folder) == before


def test_the_report_names_versions_devices_caches_and_missing_packages(precis, cache, monkeypatch):
    monkeypatch.setattr("os.environ", os.environ | {"XDG_CACHE_HOME": "~/a", "HF_HOME": "", "HF_HUB_CACHE": ""})
    report = json.loads(precis("doctor", "--json").succeeded().out)
    assert report["versions"]["torch"] == metadata.version("torch") and not report["problems"]
    assert "CPU core" in report["devices"][0] and str(cache) in report["caches"] and "minilm" in report["extras"]
    assert f"{Path.home()}/a/huggingface/hub" in report["caches"] and metadata.version("torch") in precis("doctor").out
    lines = ["torch>=999", "nothing-of-this-name>=1", 'nor-of-this; extra == "minilm"', 'rich; extra == "lora"']
    monkeypatch.setattr(metadata, "requires", lambda _: lines)
    required, extras = check_requirements()
    assert set(required) == {"torch", "nothing-of-this-name"} and extras["lora"] == "installed"
    assert extras["minilm"] == "lacks nor-of-this: pip install 'precis-suite[minilm]'"
    done = precis("doctor", "--json")
    assert done.status == 1 and len(json.loads(done.out)["problems"]) == 2


ROWS = [{"Article": f"It rained on day {day}. It was cold.", "highlights": "It rained."} for day in range(80)]
SMALL = (
    "--model.hidden_size=8", "--model.embedding.size=8", "--data.max_train=8", "--data.max_eval=2", "--wandb=off",
    "--trainer.max_epochs=1", "--trainer.accelerator=cpu", "--model.decoding.max_length=5", "--data.max_source=20",
)  # fmt: skip


@pytest.mark.integration
def test_the_configs_have_the_fields_of_the_files_and_a_project_trains_as_it_is(tmp_path, precis, monkeypatch):
    path = write_lines(tmp_path / "mine.jsonl", ROWS)
    for model in MODELS:
        assert "'Article'" in precis("init", tmp_path / model, "--model", model, "--train", path).succeeded().out
        monkeypatch.chdir(tmp_path / model)
        fit_parser().parse_args(["--config", "config.yaml"])
        values = yaml.safe_load(Path("config.yaml").read_text(encoding="utf-8"))["data"]["init_args"]["corpus"]
        assert values["init_args"] == {"train": str(path), "document": "Article", "summary": "highlights", "split": 0.1}
    done = precis("init", tmp_path / "a project", "--train", path).succeeded()
    assert f"next: cd '{tmp_path}/a project' && precis fit" in done.out
    monkeypatch.chdir(tmp_path / "a project")
    precis("fit", "--config", "config.yaml", "--run_dir", "runs/first", *SMALL).succeeded()
    assert Path("runs/first/checkpoints/best.ckpt").is_file()


def test_the_id_is_unique_and_wrong_files_leave_no_project(tmp_path, precis):
    rows = [{"url": "same", "guid": number, "body": f"Rain {number}.", "title": "Rain."} for number in range(4)]
    path = write_lines(tmp_path / "mine.jsonl", rows)
    assert "id 'guid'" in precis("init", tmp_path / "project", "--train", path).out
    write_lines(path, [row | {"guid": 1} for row in rows])
    assert "id the file and line" in precis("init", tmp_path / "other", "--train", path).out
    assert "url: text of 1 word\n" in precis("corpus", path).succeeded().err  # which is not "the id"
    write_lines(path, [row | {"guid": 1, "id": 1} for row in rows])
    assert "the same `id`" in precis("init", tmp_path / "third", "--train", path).err

    wrong = [({"words": "a"}, "fields: words"), ({"document": "a"}, "training needs one"), ("{", "broken JSON")]
    for row, message in wrong:
        write_lines(path, [row])
        precis("init", tmp_path / "none", "--train", path).failed_in_one_line(message)
        assert not (tmp_path / "none").exists()
