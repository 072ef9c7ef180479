"""Bad records, texts, checkpoints and folders: one clear line, a status, and nothing half-written."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from conftest import change_config, contents, read_lines, write, write_lines

from datamodules.atomic_write import LOCK
from datamodules.documents import UserError
from precis.runs.run_folder import load_run
from precis.sweeping.job import COMMAND

pytestmark = pytest.mark.integration

GOOD = {"id": "good", "document": "The otter paints the mill before the rain.", "summary": "the otter paints ."}


def refused(done, *said):
    """Check for one line of error that says all this; what Lightning tells of the machine may stand before it."""
    lines = [line for line in done.err.splitlines() if line.startswith("precis: error: ")]
    assert done.status == 1 and len(lines) == 1 and done.err.endswith(lines[0] + "\n"), done
    assert "Traceback" not in done.err and [words for words in said if words not in lines[0]] == [], lines[0]


def test_a_bad_record_ends_the_run_before_it_begins(tiny_config, tmp_path, precis, monkeypatch):
    bad, run, cache = tmp_path / "bad.jsonl", tmp_path / "run", tmp_path / "cache"
    monkeypatch.setenv("PRECIS_CACHE", str(cache))
    bad.write_bytes(json.dumps(GOOD).encode() + b'\n{"id": "b", "document": "caf\xe9"}\n')
    done = precis("fit", "--config", tiny_config, "--run_dir", run, "--data.corpus.train", bad)
    refused(done, f"{bad}:2", "not UTF-8 (byte 0xe9); convert the file", "--data.on_bad_record skip")
    assert not run.exists()
    assert not [path for path in cache.rglob("*") if path.is_file() and path.name != LOCK]


def test_bad_records_are_skipped_counted_and_named_if_one_asks_for_that(tiny_config, tmp_path, precis, corpus_files):
    good = read_lines(corpus_files["train"])
    rows = [*good[:5], "{", GOOD | {"document": ""}, *good[5:], {"id": "x", "document": "y"}]
    bad = write_lines(tmp_path / "bad.jsonl", rows)
    arguments = ["--config", tiny_config, "--data.corpus.train", bad, "--trainer.max_steps", 1]
    with pytest.warns(UserWarning, match="left out 3 bad records") as caught:
        precis("fit", *arguments, "--run_dir", tmp_path / "run", "--data.on_bad_record", "skip").succeeded()
    said = next(str(warning.message) for warning in caught if "left out" in str(warning.message))
    for where in (f"{bad}:6: broken JSON", f"{bad}:7 (id 'good'): the document is empty", f"{bad}:29 "):
        assert where in said
    record = json.loads((tmp_path / "run" / "environment.json").read_text(encoding="utf-8"))["corpus"]["train"]
    skipped = [re.search(r"jsonl:(\d+)", entry["where"])[1] for entry in record["skipped"]]
    assert record["documents"] == 26 and skipped == ["6", "7", "29"]
    # what was built with records left out is not taken for whole later
    refused(precis("fit", *arguments, "--run_dir", tmp_path / "other"), f"{bad}:6: broken JSON")
    assert not (tmp_path / "other").exists()


def test_a_missing_split_is_named(tiny_config, tmp_path, precis):
    without = change_config(tiny_config, {"data.init_args.corpus.init_args.val": None}, tmp_path / "without.yaml")
    fit = ["fit", "--config", without, "--run_dir", tmp_path / "other"]
    remedy = "name a source for it with --data.corpus.val, or take a share of the training documents with --data.corpus"
    refused(precis(*fit), f"Files has no split 'val' (it has: train, test); {remedy}.split")
    assert not (tmp_path / "other").exists()
    precis(*fit, "--data.corpus.split=0.5", "--dry-run").succeeded()


def test_an_existing_run_is_not_overwritten_and_a_missing_one_is_named(run_folder, tiny_config, tmp_path, precis):
    before = contents(run_folder)
    done = precis("fit", "--config", tiny_config, "--run_dir", run_folder)
    command = f"precis fit --run {run_folder}"
    refused(done, f"{run_folder}: the folder already has a run; continue it with `{command}`, or pass")
    assert contents(run_folder) == before
    for command in (["test", "--run"], ["predict", "--run"], ["fit", "--run"], ["summarize", "--checkpoint"]):
        refused(precis(*command, tmp_path / "none"), f"{tmp_path}/none/config.yaml: not found; give the folder of")
    refused(precis("test", "--run"), "--run needs the folder of a run")
    refused(precis("validate", "--config", tiny_config), "precis validate needs a trained model; pass --run")
    refused(precis("report", tmp_path / "none"), "predictions.jsonl: not found; run `precis test --run")
    done = precis("fit", "--config", tiny_config, "--run_dir", tmp_path / "none", "--resume", "true")
    refused(done, "no checkpoint to resume from; pass --resume auto, which then starts a new run")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("spoil, said", [
    (lambda path: path.write_bytes(path.read_bytes()[:-100]), "only a part of one"),
    (lambda path: torch.save({"weights": torch.zeros(2)}, path), "not a checkpoint of `precis fit`"),
])  # fmt: skip
def test_a_checkpoint_that_is_none_is_named(spoil, said, run_folder, precis, tmp_path):
    for path in (run_folder / "checkpoints").iterdir():
        spoil(path)
    text = write(tmp_path / "text.txt", "The otter paints.")
    for command in (["test", "--run", run_folder], ["summarize", "--checkpoint", run_folder, text]):
        refused(precis(*command), f"{run_folder}/checkpoints/best.ckpt: ", said, "; give ")
    refused(precis("fit", "--run", run_folder), f"{run_folder}/checkpoints/last.ckpt: ", said)
    assert not (run_folder / "predictions.jsonl").exists()


def test_a_vocabulary_that_does_not_fit_the_checkpoint_is_named(run_folder, precis, tmp_path):
    other = Path(shutil.copytree(run_folder / "text", tmp_path / "text"))
    content = json.loads((other / "vocabulary.json").read_text(encoding="utf-8"))
    content["words"][:2] = content["words"][1::-1]  # other words, as many of them
    write(other / "vocabulary.json", json.dumps(content))
    for option, value, problem in (
        ("--data.tokenizer_dir", other, "not the one this checkpoint was trained with; give --data.tokenizer_dir"),
        ("--model.vocab_size", 20, "has 40 tokens but model.vocab_size is 20; raise --model.vocab_size, or give"),
        ("--model.vocab_size", 60, "not fit the model: network.embedding.weight is [40, 12] there and [60, 12] here"),
        ("--model.pointer", "false", "network.pointer.bias is [1] there and absent here; give the --model arguments"),
        ("--data.tokenizer_dir", tmp_path / "none", "no such file; give the `text` folder of a run"),
    ):
        refused(precis("test", "--run", run_folder, option, value), problem)
    assert not list(run_folder.glob("*predictions*"))
    shutil.copy(other / "vocabulary.json", run_folder / "text")
    with pytest.raises(UserError, match="the vocabulary of the data is not the one"):
        load_run(run_folder)


def test_places_of_caches_and_encodings_that_do_not_work_are_named(precis, corpus_files, tmp_path, monkeypatch):
    monkeypatch.setenv("PRECIS_CACHE", corpus_files["val"])
    refused(precis("corpus", corpus_files["train"]), corpus_files["val"], "name another one")
    monkeypatch.delenv("PRECIS_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", os.devnull)
    refused(precis("corpus", corpus_files["train"]), "set PRECIS_CACHE to a folder that you can write to")
    monkeypatch.undo()
    path = write(tmp_path / "records.jsonl", '{"id": "a", "document": "Über den Fluss.", "summary": "Über."}\n')
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*COMMAND, "corpus", path], env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr and "PYTHONIOENCODING=utf-8" in done.stderr
