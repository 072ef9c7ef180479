"""A run from `precis fit` to `precis report`, and the files that it writes."""

import io
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from conftest import assert_same_checkpoints, read_lines, read_metrics, write

from lightning_modules.metrics.rouge import rouge_scores
from precis.runs import run_folder as run_folder_module

pytestmark = pytest.mark.integration


def without_run_dir(path: Path) -> dict:
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {name: value for name, value in config.items() if name not in ("run_dir", "previews")}


def test_the_run_folder_has_its_documented_content(trained):
    said = re.findall(r"^    (\S+)  ", run_folder_module.__doc__, re.MULTILINE)
    there = {path.name + "/" * path.is_dir() for path in trained.iterdir()}
    assert there == set(said) - {"predictions.jsonl", "results.json", "wandb/"}
    assert {path.stem for path in (trained / "checkpoints").iterdir()} == {"best", "last", "previous"}
    assert [path.name for path in (trained / "text").iterdir()] == ["vocabulary.json"]
    assert len(list((trained / "previews").rglob("*.png"))) == 4


def test_metrics_have_a_row_a_step_and_one_a_validation(trained):
    rows = read_metrics(trained)
    training, validation = ([row for row in rows if row[name]] for name in ("train/loss", "val/loss"))
    assert [int(row["step"]) for row in training] == list(range(14))
    assert [int(row["step"]) for row in validation] == [6, 13]
    for row in training:
        parts = float(row["train/nll"]) + float(row["train/coverage"])
        assert float(row["train/loss"]) == pytest.approx(parts, rel=1e-5)
    names = ("rouge1", "rouge2", "rougeLsum", "length", "p_gen")
    assert all(row[f"val/{name}"] for row in validation for name in names)


def test_without_a_folder_the_time_names_it(tiny_config, tmp_path, precis, monkeypatch):
    monkeypatch.chdir(tmp_path)
    precis("fit", "--config", tiny_config, "--trainer.max_steps", 1).succeeded()
    (run,) = (tmp_path / "runs" / "pointergenerator").iterdir()
    assert re.fullmatch(r"\d{8}-\d{6}", run.name) and (run / "checkpoints" / "last.ckpt").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_without_summaries_the_best_model_has_the_lowest_loss(tiny_config, tmp_path, precis):
    run = tmp_path / "run"
    precis("fit", "--config", tiny_config, "--run_dir", run, "--model.val_summaries", 0).succeeded()
    losses = {int(row["step"]) + 1: float(row["val/loss"]) for row in read_metrics(run) if row["val/loss"]}
    best = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)
    assert best["global_step"] == min(losses, key=losses.get)


def test_test_scores_every_document(run_folder, precis, tmp_path, monkeypatch):
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
    assert [path.name for path in tmp_path.iterdir()] == ["run"], "nothing lies about in the working folder"


def test_each_split_and_source_has_a_file_and_results_of_its_own(run_folder, precis, tmp_path, corpus_files):
    assert precis("test", "--run", run_folder).status == 0
    tested = {path: path.read_bytes() for path in [*run_folder.glob("predictions*"), run_folder / "results.json"]}
    other = tmp_path / "other.jsonl"
    shutil.copy(corpus_files["val"], other)
    assert precis("validate", "--run", run_folder).status == 0
    assert precis("predict", "--run", run_folder).status == 0
    assert precis("test", "--run", run_folder, "--data.corpus.test", other).status == 0
    assert {path: path.read_bytes() for path in tested} == tested, "what was tested is still there"
    names = {path.name for path in run_folder.glob("predictions*.jsonl")}
    (source,) = names - {"predictions.jsonl", "predictions.val.jsonl", "predictions.predict.jsonl"}
    assert re.fullmatch(r"predictions\.files-[0-9a-f]{8}\.jsonl", source)

    results = json.loads((run_folder / "results.json").read_text(encoding="utf-8"))
    rows = read_lines(run_folder / "predictions.jsonl")
    assert (results["split"], results["documents"], results["predictions"]) == ("test", 7, "predictions.jsonl")
    assert results["scores"]["test/rouge1"] == pytest.approx(np.mean([row["scores"]["rouge1"] for row in rows]))
    assert json.loads((run_folder / "results.val.json").read_text(encoding="utf-8"))["split"] == "val"
    elsewhere = json.loads((run_folder / source.replace("predictions", "results").replace("jsonl", "json")).read_text())
    assert elsewhere["split"] == "test" and elsewhere["corpus"]["init_args"]["test"] == str(other)


def test_out_names_another_file(run_folder, precis, tmp_path, tiny_config):
    out = tmp_path / "more" / "beam1.jsonl"
    assert precis("test", "--run", run_folder, "--model.decoding.beam_size=1", "--out", out).status == 0
    assert len(read_lines(out)) == 7 and (out.parent / "beam1.results.json").is_file()
    assert not list(run_folder.glob("predictions*"))
    done = precis("test", "--run", run_folder, "--out", tmp_path / "x.json")
    assert done.status == 1 and "x.json: predictions are JSON Lines; give a name that ends in .jsonl" in done.err
    done = precis("fit", "--config", tiny_config, "--run_dir", tmp_path / "new", "--out", out)
    assert done.status == 1 and "precis fit writes no predictions" in done.err and not (tmp_path / "new").exists()


def test_documents_without_references_are_summarized_and_test_reports_what_is_missing(run_folder, precis, tmp_path):
    plain = write(tmp_path / "plain.jsonl", '{"id": "a", "document": "The otter paints the mill."}\n')
    precis("predict", "--run", run_folder, "--data.corpus.test", plain).succeeded()
    (predictions,) = run_folder.glob("predictions.predict.files-*.jsonl")
    (row,) = read_lines(predictions)
    assert (row["id"], row["references"], row["scores"]) == ("a", [], {}) and row["summary"]
    done = precis("test", "--run", run_folder, "--data.corpus.test", plain)
    assert done.status == 1 and len(done.err.splitlines()) == 1 and "precis predict" in done.err
    assert f"Files test ({plain}): none of its 1 document ('a' is the first) has a reference" in done.err
    assert read_lines(predictions) == [row]


def test_report_compares_with_lead_and_shows_documents(run_folder, precis):
    assert precis("test", "--run", run_folder).status == 0
    done = precis("report", run_folder, "--examples", 2).succeeded()
    assert "lead-1" in done.out and "model" in done.out and "7 documents" in done.out
    shown = [row["id"] for row in read_lines(run_folder / "predictions.jsonl") if row["id"] in done.out]
    assert len(shown) == 2


@pytest.fixture
def predicted(run_folder, precis, texts):
    """The test documents' texts, each with its summary."""
    assert precis("predict", "--run", run_folder).status == 0
    summaries = [" ".join(row["summary"]) for row in read_lines(run_folder / "predictions.predict.jsonl")]
    return list(zip(texts, summaries))


def test_summarize_files_and_folders(run_folder, predicted, precis, tmp_path, cache):
    kept = sorted(cache.rglob("*"))
    folder = tmp_path / "texts"
    folder.mkdir()
    for number, (text, _) in enumerate(predicted):
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
    (folder / "notes.md").write_text("no text of ours", encoding="utf-8")
    done = precis("summarize", "--checkpoint", run_folder, folder, "--batch_size", 3)
    expected = "".join(f"== {number}.txt\n{summary}\n" for number, (_, summary) in enumerate(predicted))
    assert (done.status, done.out) == (0, expected)
    done = precis("summarize", "--checkpoint", run_folder, folder / "3.txt", folder / "1.txt")
    assert done.out == f"== {folder}/3.txt\n{predicted[3][1]}\n== {folder}/1.txt\n{predicted[1][1]}\n"
    assert sorted(cache.rglob("*")) == kept, "other people's texts stay in no cache"


def test_summarize_as_json_and_with_marks(run_folder, predicted, precis, monkeypatch):
    text, summary = predicted[0]
    outputs = []
    for option in ("--json", "--mark"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))
        outputs.append(precis("summarize", "--checkpoint", run_folder, option, "true").out)
    record, marked = json.loads(outputs[0]), outputs[1]
    assert record["id"] == "standard input" and " ".join(record["summary"]) == summary
    assert ("[" in marked) == any(record["copied"]) and marked.count("[") == marked.count("]")
    assert re.sub(r"[\[\]]", "", marked).split() == " ".join(record["words"]).split()


@pytest.mark.parametrize("how", ["--config", "--run"])
def test_a_resumed_run_equals_one_that_had_not_stopped(how, tiny_config, trained, tmp_path, precis):
    run = tmp_path / "run"
    assert precis("fit", "--config", tiny_config, "--run_dir", run, "--trainer.max_epochs", 1).status == 0
    with (run / "metrics.csv").open("a", encoding="utf-8") as file:  # logged after the checkpoint, then interrupted
        file.write("1,7" + "," * (len(read_metrics(run)[0]) - 2) + "\n")
    again = {"--config": ["--config", run / "config.yaml", "--resume", "true"], "--run": ["--run", run]}
    precis("fit", *again[how], "--trainer.max_epochs", 2).succeeded()
    assert read_metrics(run) == read_metrics(trained)
    assert_same_checkpoints(run, trained)
    assert without_run_dir(run / "config.yaml") == without_run_dir(trained / "config.yaml")
    # and once more, now that there is nothing left to do
    assert precis("fit", "--run", run).status == 0
    assert read_metrics(run) == read_metrics(trained)
