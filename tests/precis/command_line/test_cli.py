"""A run from `precis fit` to `precis report`; bad records, texts, checkpoints and folders are one clear line."""

import io
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import change_config, contents, read_lines, read_metrics, step_of, write, write_lines

from datamodules.atomic_write import LOCK
from datamodules.documents import UserError
from lightning_modules.metrics.rouge import rouge_scores
from precis.runs import run_folder as run_folder_module
from precis.runs.run_folder import load_run
from precis.runs.runs import describe_run

pytestmark = pytest.mark.integration


def test_the_run_folder_has_its_documented_content_with_metrics_of_each_step_and_validation(trained):
    documented = re.findall(r"^(\S+)  ", run_folder_module.__doc__, re.MULTILINE)
    there = {path.name + "/" * path.is_dir() for path in trained.iterdir()}
    assert there == set(documented) - {"predictions.jsonl", "results.json", "wandb/"}
    assert {path.stem for path in (trained / "checkpoints").iterdir()} == {"best", "last", "previous"}
    assert [path.name for path in (trained / "text").iterdir()] == ["vocabulary.json"]
    assert len(list((trained / "previews").rglob("*.png"))) == 4
    rows = read_metrics(trained)
    training, validation = ([row for row in rows if row[name]] for name in ("train/loss", "val/loss"))
    assert [int(row["step"]) for row in training] == list(range(14))
    assert [int(row["step"]) for row in validation] == [6, 13]
    for row in training:
        parts = float(row["train/nll"]) + float(row["train/coverage"])
        assert float(row["train/loss"]) == pytest.approx(parts, rel=1e-5)
    names = ("rouge1", "rouge2", "rougeLsum", "length", "p_gen")
    assert all(row[f"val/{name}"] for row in validation for name in names)


def test_without_folder_or_summaries_time_and_loss_are_taken(tiny_config, tmp_path, precis, monkeypatch):
    monkeypatch.chdir(tmp_path)
    precis("fit", "--config", tiny_config, "--model.val_summaries", 0).succeeded()
    (run,) = (tmp_path / "runs" / "pointergenerator").iterdir()
    assert re.fullmatch(r"\d{8}-\d{6}", run.name) and (run / "checkpoints" / "last.ckpt").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    losses = {int(row["step"]) + 1: float(row["val/loss"]) for row in read_metrics(run) if row["val/loss"]}
    assert step_of(run / "checkpoints" / "best.ckpt") == min(losses, key=losses.get)
    assert describe_run(run)["best"] == min(losses.values())


def test_each_split_and_source_has_predictions_and_results(run_folder, precis, tmp_path, monkeypatch, corpus_files):
    monkeypatch.chdir(tmp_path)
    done = precis("test", "--run", run_folder).succeeded()
    rows = read_lines(run_folder / "predictions.jsonl")
    assert [row["id"] for row in rows] == [f"doc-{number}" for number in range(33, 40)]
    for row in rows:
        score = rouge_scores(row["summary"], row["references"], ("rouge2",))["rouge2"].fmeasure
        assert row["scores"]["rouge2"] == pytest.approx(100 * score)
        assert len(row["copied"]) == len(row["words"])
    shown = float(re.search(r"test/rouge1\D*([\d.]+)", done.out)[1])
    assert shown == pytest.approx(sum(row["scores"]["rouge1"] for row in rows) / len(rows), rel=1e-5)
    report = precis("report", run_folder, "--examples", 2).succeeded().out
    assert all(part in report for part in ("lead-1", "model", "(stem:porter|tok:rouge) on test, 7 documents"))
    assert "(stem:none|tok:zh)" in precis("report", run_folder, "--language", "zh").out
    assert sum(row["id"] in report for row in rows) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["run"], "nothing lies about in the working folder"

    tested = contents(run_folder)
    other = shutil.copy(corpus_files["val"], tmp_path / "other.jsonl")
    for command in (["validate"], ["predict"], ["test", "--data.corpus.test", other]):
        precis(*command, "--run", run_folder).succeeded()
    assert contents(run_folder).items() >= tested.items(), "what was tested is still there"
    names = {path.name for path in run_folder.glob("predictions*.jsonl")}
    (source,) = names - {"predictions.jsonl", "predictions.val.jsonl", "predictions.predict.jsonl"}
    assert re.fullmatch(r"predictions\.files-[0-9a-f]{8}\.jsonl", source)

    def results_in(name: str) -> dict:
        return json.loads((run_folder / name).read_text(encoding="utf-8"))

    results = results_in("results.json")
    assert (results["split"], results["documents"], results["predictions"]) == ("test", 7, "predictions.jsonl")
    assert results["scores"]["test/rouge1"] == pytest.approx(np.mean([row["scores"]["rouge1"] for row in rows]))
    assert results_in("results.val.json")["split"] == "val"
    elsewhere = results_in(source.replace("predictions", "results").replace("jsonl", "json"))
    assert elsewhere["split"] == "test" and elsewhere["corpus"]["init_args"]["test"] == str(other)


def test_out_names_another_file_and_references_are_optional(run_folder, precis, tmp_path):
    out = tmp_path / "more" / "beam1.jsonl"
    precis("test", "--run", run_folder, "--model.decoding.beam_size=1", "--out", out).succeeded()
    assert len(read_lines(out)) == 7 and (out.parent / "beam1.results.json").is_file()
    assert not list(run_folder.glob("predictions*"))
    done = precis("test", "--run", run_folder, "--out", tmp_path / "x.json")
    done.refused("x.json: predictions are JSON Lines; give a name that ends in .jsonl")

    plain = write(tmp_path / "plain.jsonl", '{"id": "a", "document": "The otter paints the mill."}\n')
    precis("predict", "--run", run_folder, "--data.corpus.test", plain).succeeded()
    (predictions,) = run_folder.glob("predictions.predict.files-*.jsonl")
    (row,) = read_lines(predictions)
    assert (row["id"], row["references"], row["scores"]) == ("a", [], {}) and row["summary"]
    done = precis("test", "--run", run_folder, "--data.corpus.test", plain)
    problem = f"Files test ({plain}): none of its 1 document ('a' is the first) has a reference"
    done.failed_in_one_line(problem, "precis predict")
    assert read_lines(predictions) == [row]


def test_summarize_reads_files_folders_and_standard_input(run_folder, texts, precis, tmp_path, cache, monkeypatch):
    precis("predict", "--run", run_folder).succeeded()
    predicted = [" ".join(row["summary"]) for row in read_lines(run_folder / "predictions.predict.jsonl")]
    kept, folder = sorted(cache.rglob("*")), tmp_path / "texts"
    folder.mkdir()
    for number, text in enumerate(texts):
        write(folder / f"{number}.txt", text)
    write(folder / "notes.md", "no text of ours")
    summarize = ["summarize", "--checkpoint", run_folder]
    done = precis(*summarize, folder, "--batch_size", 3).succeeded()
    assert done.out == "".join(f"== {number}.txt\n{summary}\n" for number, summary in enumerate(predicted))
    done = precis(*summarize, folder / "3.txt", folder / "1.txt")
    assert done.out == f"== {folder}/3.txt\n{predicted[3]}\n== {folder}/1.txt\n{predicted[1]}\n"
    assert sorted(cache.rglob("*")) == kept, "other people's texts stay in no cache"

    outputs = []
    for option in ("--json", "--mark"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(texts[0].encode()), encoding="utf-8"))
        outputs.append(precis(*summarize, option, "true").out)
    record, marked = json.loads(outputs[0]), outputs[1]
    assert record["id"] == "standard input" and " ".join(record["summary"]) == predicted[0]
    assert ("[" in marked) == any(record["copied"]) and marked.count("[") == marked.count("]")
    assert re.sub(r"[\[\]]", "", marked).split() == " ".join(record["words"]).split()


GOOD = {"id": "good", "document": "The otter paints the mill before the rain.", "summary": "the otter paints ."}


def test_a_bad_record_ends_the_run_or_is_skipped_and_named(tiny_config, tmp_path, precis, corpus_files, monkeypatch):
    bad, run, cache = tmp_path / "bad.jsonl", tmp_path / "run", tmp_path / "cache"
    monkeypatch.setenv("PRECIS_CACHE", str(cache))
    bad.write_bytes(json.dumps(GOOD).encode() + b'\n{"id": "b", "document": "caf\xe9"}\n')
    arguments = ["--config", tiny_config, "--data.corpus.train", bad, "--trainer.max_steps", 1]
    done = precis("fit", *arguments, "--run_dir", run)
    done.failed_in_one_line(f"{bad}:2", "not UTF-8 (byte 0xe9); convert the file", "--data.on_bad_record skip")
    assert not run.exists()
    assert not [path for path in cache.rglob("*") if path.is_file() and path.name != LOCK]

    good = read_lines(corpus_files["train"])
    write_lines(bad, [*good[:5], "{", GOOD | {"document": ""}, *good[5:], {"id": "x", "document": "y"}])
    with pytest.warns(UserWarning, match="left out 3 bad records") as caught:
        precis("fit", *arguments, "--run_dir", run, "--data.on_bad_record", "skip").succeeded()
    message = next(str(warning.message) for warning in caught if "left out" in str(warning.message))
    for where in (f"{bad}:6: broken JSON", f"{bad}:7 (id 'good'): the document is empty", f"{bad}:29 "):
        assert where in message
    record = json.loads((run / "environment.json").read_text(encoding="utf-8"))["corpus"]["train"]
    skipped = [re.search(r"jsonl:(\d+)", entry["where"])[1] for entry in record["skipped"]]
    assert record["documents"] == 26 and skipped == ["6", "7", "29"]
    # what was built with records left out is not taken for whole later
    precis("fit", *arguments, "--run_dir", tmp_path / "other").failed_in_one_line(f"{bad}:6: broken JSON")
    assert not (tmp_path / "other").exists()


def test_a_missing_split_is_named_an_existing_run_not_overwritten(run_folder, tiny_config, tmp_path, precis):
    without = change_config(tiny_config, {"data.init_args.corpus.init_args.val": None}, tmp_path / "without.yaml")
    fit = ["fit", "--config", without, "--run_dir", tmp_path / "other"]
    remedy = "name a source for it with --data.corpus.val, or take a share of the training documents with --data.corpus"
    precis(*fit).failed_in_one_line(f"Files has no split 'val' (it has: train, test); {remedy}.split")
    assert not (tmp_path / "other").exists()
    precis(*fit, "--data.corpus.split=0.5", "--dry-run").succeeded()

    before = contents(run_folder)
    done = precis("fit", "--config", tiny_config, "--run_dir", run_folder)
    command = f"precis fit --run {run_folder}"
    done.failed_in_one_line(f"{run_folder}: the folder already has a run; continue it with `{command}`, or pass")
    assert contents(run_folder) == before
    for command in (["test", "--run"], ["predict", "--run"], ["fit", "--run"], ["summarize", "--checkpoint"]):
        done = precis(*command, tmp_path / "none")
        done.failed_in_one_line(f"{tmp_path}/none/config.yaml: not found; give the folder of")
    done = precis("fit", "--config", tiny_config, "--run_dir", tmp_path / "none", "--resume", "true")
    done.failed_in_one_line("no checkpoint to resume from; pass --resume auto, which then starts a new run")
    assert not (tmp_path / "none").exists()


def test_a_checkpoint_that_is_none_is_named(run_folder, precis):
    for spoil, expected in (
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "only a part of one"),
        (lambda path: torch.save({"weights": torch.zeros(2)}, path), "not a checkpoint of `precis fit`"),
    ):
        for path in (run_folder / "checkpoints").iterdir():
            spoil(path)
        for command in (["test", "--run", run_folder], ["summarize", "--checkpoint", run_folder, "The otter paints."]):
            precis(*command).failed_in_one_line(f"{run_folder}/checkpoints/best.ckpt: ", expected, "; give ")
        precis("fit", "--run", run_folder).failed_in_one_line(f"{run_folder}/checkpoints/last.ckpt: ", expected)
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
        ("--data.tokenizer_dir", tmp_path / "none", "no such file; give the `text` folder of a run"),
    ):
        done = precis("test", "--run", run_folder, option, value)
        *_, line = done.err.splitlines()  # what Lightning tells of the machine may stand before it
        assert done.status == 1 and line.startswith("precis: error: ") and problem in line, done
        assert done.err.count("precis: error: ") == 1 and "Traceback" not in done.err
    assert not list(run_folder.glob("*predictions*"))
    shutil.copy(other / "vocabulary.json", run_folder / "text")
    with pytest.raises(UserError, match="the vocabulary of the data is not the one"):
        load_run(run_folder)
