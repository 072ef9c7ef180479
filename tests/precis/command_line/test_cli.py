"""A run from `precis fit` to `precis report`, and the files that it writes."""

import io
import json
import re
import shutil
import sys

import numpy as np
import pytest
import yaml
from conftest import assert_same_checkpoints, contents, read_lines, read_metrics, step_of, write

from lightning_modules.metrics.rouge import rouge_scores
from precis.runs import run_folder as run_folder_module

pytestmark = pytest.mark.integration


def test_the_run_folder_has_its_documented_content_with_metrics_of_each_step_and_validation(trained):
    said = re.findall(r"^(\S+)  ", run_folder_module.__doc__, re.MULTILINE)
    there = {path.name + "/" * path.is_dir() for path in trained.iterdir()}
    assert there == set(said) - {"predictions.jsonl", "results.json", "wandb/"}
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
    assert step_of(run / "checkpoints" / "best.ckpt") == min(losses, key=losses.get)


def test_test_scores_every_document_and_report_compares_with_lead(run_folder, precis, tmp_path, monkeypatch):
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
    assert all(part in report for part in ("lead-1", "model", "7 documents"))
    assert sum(row["id"] in report for row in rows) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["run"], "nothing lies about in the working folder"


def test_each_split_and_source_has_a_file_and_results_of_its_own(run_folder, precis, tmp_path, corpus_files):
    precis("test", "--run", run_folder).succeeded()
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
    rows = read_lines(run_folder / "predictions.jsonl")
    assert (results["split"], results["documents"], results["predictions"]) == ("test", 7, "predictions.jsonl")
    assert results["scores"]["test/rouge1"] == pytest.approx(np.mean([row["scores"]["rouge1"] for row in rows]))
    assert results_in("results.val.json")["split"] == "val"
    elsewhere = results_in(source.replace("predictions", "results").replace("jsonl", "json"))
    assert elsewhere["split"] == "test" and elsewhere["corpus"]["init_args"]["test"] == str(other)


def test_out_names_another_file(run_folder, precis, tmp_path, tiny_config):
    out = tmp_path / "more" / "beam1.jsonl"
    precis("test", "--run", run_folder, "--model.decoding.beam_size=1", "--out", out).succeeded()
    assert len(read_lines(out)) == 7 and (out.parent / "beam1.results.json").is_file()
    assert not list(run_folder.glob("predictions*"))
    done = precis("test", "--run", run_folder, "--out", tmp_path / "x.json")
    done.refused("x.json: predictions are JSON Lines; give a name that ends in .jsonl")
    done = precis("fit", "--config", tiny_config, "--run_dir", tmp_path / "new", "--out", out)
    done.refused("precis fit writes no predictions")
    assert not (tmp_path / "new").exists()


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


@pytest.mark.parametrize("how", ["--config", "--run"])
def test_a_resumed_run_equals_one_that_had_not_stopped(how, tiny_config, trained, tmp_path, precis):
    run = tmp_path / "run"
    precis("fit", "--config", tiny_config, "--run_dir", run, "--trainer.max_epochs", 1).succeeded()
    with (run / "metrics.csv").open("a", encoding="utf-8") as file:  # logged after the checkpoint, then interrupted
        file.write("1,7" + "," * (len(read_metrics(run)[0]) - 2) + "\n")
    again = {"--config": ["--config", run / "config.yaml", "--resume", "true"], "--run": ["--run", run]}
    precis("fit", *again[how], "--trainer.max_epochs", 2).succeeded()
    assert read_metrics(run) == read_metrics(trained)
    assert_same_checkpoints(run, trained)
    ours, theirs = (yaml.safe_load((folder / "config.yaml").read_text()) for folder in (run, trained))
    assert ours | {"run_dir": None, "previews": None} == theirs | {"run_dir": None, "previews": None}
    # and once more, now that there is nothing left to do
    precis("fit", "--run", run).succeeded()
    assert read_metrics(run) == read_metrics(trained)
