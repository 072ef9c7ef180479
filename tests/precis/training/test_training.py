"""`precis fit` checks values before training, and says what it does, also without a terminal and in a dry run."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import wandb
import yaml
from conftest import assert_same_checkpoints, change_config, contents, read_lines, read_metrics, write
from wandb_file import OfflineRun

from datamodules.documents import Document
from lightning_modules.metrics.lead import lead_scores
from lightning_modules.metrics.rouge import rouge_scores
from precis.runs.run_state import read_state
from precis.sweeping.sweep_folder import last_metrics
from precis.training import run_progress

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
EARLY = ["--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.mode=min"]
NO_VALIDATION = "--trainer.limit_val_batches=0"
STOPPING = "--trainer.callbacks+=EarlyStopping --trainer.callbacks.monitor=train/loss"
PLATEAU = "--optimizer=SGD --optimizer.lr=0.1 --lr_scheduler=ReduceLROnPlateau --lr_scheduler.patience=0"
PLATEAU += " --lr_scheduler.threshold=0.9 --lr_scheduler.monitor="
VALIDATION = "it logs val/coverage, val/length, val/loss, val/nll"


@pytest.mark.parametrize("flags, starts, messages", [
    (["--checkpoint.monitor=val/rogue1"], False,
     ["checkpoint.monitor is 'val/rogue1', which this run does not log", "did you mean val/rouge1?", VALIDATION]),
    ([*EARLY, "--trainer.callbacks.monitor=loss"], False,
     ["monitor of EarlyStopping is 'loss', which this run does not", VALIDATION]),
    (["--checkpoint.monitor=train/lss", "--trainer.accumulate_grad_batches=2"], True,
     ["checkpoint.monitor is 'train/lss'", "did you mean train/loss?"]),
], ids=["checkpoint", "early-stopping", "value-of-training"])  # fmt: skip
def test_a_value_that_is_never_logged_is_found(flags, starts, messages, tiny_config, tmp_path, precis):
    run = tmp_path / "run"
    precis("fit", "--config", tiny_config, "--run_dir", run, *flags).refused(*messages)
    assert run.exists() == starts and not list(tmp_path.rglob("*.ckpt"))


def test_data_and_sizes_of_another_run_are_refused(tiny_config, corpus_files, run_folder, tmp_path, precis):
    files = [f"--data.corpus.{split}={path}" for split, path in corpus_files.items()]
    data = ["--data=GraphSumData", "--data.corpus=Files", *files]
    message = "PointerGenerator reads PointerGeneratorBatch, but GraphSumData makes GraphSumBatch; give --data the "
    path = change_config(tiny_config, {"data": None}, tmp_path / "config.yaml")
    precis("fit", "--config", path, *data, "--run_dir", tmp_path / "other").refused(message)
    assert not (tmp_path / "other").exists()

    before = contents(run_folder)
    done = precis("fit", "--run", run_folder, "--model.hidden_size=16", "--trainer.max_epochs=3")
    done.refused("the checkpoint does not fit the model")
    assert contents(run_folder) == before
    assert read_state(run_folder) == {"state": "finished", "step": 14}


def test_a_run_that_ended_early_is_trained_on_only_if_that_is_asked_for(tiny_config, trained, tmp_path, precis, caplog):
    run = tmp_path / "run"
    flags = [*EARLY, "--trainer.callbacks.monitor=train/loss", "--trainer.callbacks.stopping_threshold=1000"]
    precis("fit", "--config", tiny_config, "--run_dir", run, *flags).succeeded()
    assert f"run folder: {run}" in caplog.text
    assert "training ended early after step 7: Stopping threshold reached: train/loss = " in caplog.text
    before = contents(run)
    caplog.clear()
    precis("fit", "--resume", "auto", "--config", tiny_config, "--run_dir", run).succeeded()
    assert f"{run}: this run was ended early after step 7 (Stopping threshold reached: train/loss = " in caplog.text
    assert f"To continue training anyway: precis fit --run {run} --resume true" in caplog.text
    assert contents(run) == before
    precis("fit", "--run", run, "--resume", "true").succeeded()
    assert last_metrics(run).startswith("step 14, ")

    waits = tmp_path / "waits"  # for min_epochs: this run has not ended
    flags = [*EARLY, "--trainer.callbacks.monitor=val/loss", "--trainer.callbacks.stopping_threshold=1000"]
    flags += ["--trainer.min_epochs=2", "--trainer.max_steps=7"]
    precis("fit", "--config", tiny_config, "--run_dir", waits, *flags).succeeded()
    precis("fit", "--run", waits, "--trainer.max_steps=-1").succeeded()
    assert read_metrics(waits) == read_metrics(trained)


@pytest.mark.parametrize("limit, options", [
    ("max_steps", NO_VALIDATION),
    ("max_epochs", f"{NO_VALIDATION} --save_every=2 --trainer.accumulate_grad_batches=2"),
    ("max_epochs", f"{NO_VALIDATION} --trainer.callbacks+=EMAWeightAveraging --trainer.callbacks.decay=0.5"),
    ("max_epochs", STOPPING),
    ("max_epochs", f"{PLATEAU}val/loss"),
    ("max_steps", f"{PLATEAU}train/loss {NO_VALIDATION}"),
])  # fmt: skip
def test_a_run_that_goes_on_after_each_epoch_is_one_that_did_not_end(limit, options, tiny_config, tmp_path, precis):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    start = ["fit", f"--config={tiny_config}", "--trainer.max_epochs=-1", "--trainer.limit_train_batches=3"]
    ends = [f"--trainer.{limit}={number * (3 if limit == 'max_steps' else 1)}" for number in (1, 2, 3)]
    precis(*start, *options.split(), ends[-1], f"--run_dir={whole}").succeeded()
    precis(*start, *options.split(), ends[0], f"--run_dir={parts}").succeeded()
    for end in ends[1:]:
        precis("fit", "--run", parts, end).succeeded()
    assert read_metrics(parts) == read_metrics(whole)
    assert_same_checkpoints(parts, whole)


def test_classes_in_the_working_folder_are_found(tiny_config, tmp_path):
    hello = "    def on_train_start(self, trainer, pl_module):\n        print('hello from the working folder')\n"
    write(tmp_path / "my_code.py", f"from pytorch_lightning import Callback\nclass Hello(Callback):\n{hello}")
    # as the console script starts it: the working folder is not on the path
    start = "import sys; sys.path = [p for p in sys.path if p]; "
    start += "from precis.command_line.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", start, "fit", f"--config={tiny_config}", "--run_dir=run"]
    command += ["--trainer.callbacks+=my_code.Hello", "--trainer.limit_train_batches=1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "hello from the working folder" in done.stdout, done.stderr
    trainer = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["trainer"]
    assert trainer["callbacks"][0] == {"class_path": "my_code.Hello"}
    assert str(trainer["limit_train_batches"]) == "1", "a batch; 1.0 is an epoch"


def test_the_best_checkpoint_is_summarized_at_wandb(tiny_config, tmp_path, precis):
    run = tmp_path / "run"
    # the loss falls, so that the highest one is the first
    flags = ["--wandb=offline", "--checkpoint.monitor=val/loss", "--checkpoint.mode=max"]
    precis("fit", "--config", tiny_config, "--run_dir", run, *flags).succeeded()
    assert len(list((run / "wandb").glob("offline-run-*/*.wandb"))) == 1
    precis("fit", "--run", run, "--trainer.max_epochs=3").succeeded()  # it is kept where a run goes on
    wandb.teardown()  # its service writes a little later
    first, *later = (row for row in read_metrics(run) if row["val/loss"])
    assert len(later) == 2 and all(float(first["val/loss"]) > float(row["val/loss"]) for row in later)
    for place in sorted((run / "wandb").glob("offline-run-*")):  # what each start would leave on the server
        summary = OfflineRun(run, place.name).summary
        assert summary["best_step"] == 7
        for name in ("val/loss", "val/rouge1", "val/length"):
            assert summary[name] == pytest.approx(float(first[name]))


def test_lines_without_a_terminal_end_with_lead_1(tiny_config, documents, tmp_path, precis, caplog, monkeypatch):
    texts = [Document("a", [["A cat sat.", "It left."]], [["a cat"]]), Document("b", [["A dog ran."]], [])]
    assert lead_scores(texts)["rouge1"] == pytest.approx(80) and lead_scores(texts[1:]) == {}  # without a reference
    scores = []
    for row in documents:
        first = row["document"].split(". ")[0] + "."
        scores.append(rouge_scores([first], [[row["summary"]]], ("rouge1", "rouge2", "rougeLsum")))
    leads = {name: 100 * sum(score[name].fmeasure for score in scores) / len(scores) for name in scores[0]}
    steps = []
    monkeypatch.setattr(run_progress, "write_state", lambda run, state, step: steps.append((state, step)))
    monkeypatch.setattr(run_progress, "INTERVAL", 0.0)
    run = tmp_path / "run"
    precis("fit", "--config", tiny_config, "--run_dir", run, "--trainer.enable_progress_bar=true").succeeded()
    assert "trained for 14 steps; best validation ROUGE-1 " in caplog.text
    assert "epoch 1: batch 7 of 7, step 14, train/loss " in caplog.text
    caplog.clear()
    precis("test", "--run", run).succeeded()
    running = [step for state, step in steps if state == "running"]
    assert sorted(set(running)) == [*range(15)] and steps[-1] == ("finished", 14)

    results = json.loads((run / "results.json").read_text(encoding="utf-8"))
    assert results["lead1"] == pytest.approx(leads)
    line = f"test: ROUGE-1 {results['scores']['test/rouge1']:.2f}; the first sentence of each document (lead-1) has"
    assert f"{line} {leads['rouge1']:.2f}\nnext: precis report {run}" in caplog.text
    # what the test has recorded stands below the tables of later commands
    recorded = f"lead-1, the first sentence of each document: rouge1 {leads['rouge1']:.2f}"
    predictions = run / "predictions.jsonl"
    assert recorded in precis("evaluate", predictions, "--metrics", "rouge").out
    assert recorded in precis("compare", run).out
    other = precis("evaluate", predictions, "--metrics", "rouge", "--references", predictions, "--out", tmp_path / "x")
    assert "lead-1" not in other.out, "it was not scored against these references"
    (run / "results.json").write_text(json.dumps(results | {"language": "de"}), encoding="utf-8")
    assert "lead-1" not in precis("evaluate", predictions, "--metrics", "rouge").out  # of another language
    change_config(run / "config.yaml", {"data.init_args.corpus.init_args.test": None})
    for command, following in ("validate", f"compare {run}"), ("fit", f"validate --run {run}"):
        precis(command, "--run", run).succeeded()
        assert f"next: precis {following}" in caplog.text


def test_a_dry_run_reports_shapes_and_steps_and_writes_nothing(tiny_config, run_folder, tmp_path, precis, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = contents(tmp_path)
    for arguments, steps in (
        ([], "7 per epoch, 14"),  # 26 documents in batches of 4, two epochs
        (["--trainer.accumulate_grad_batches=2", "--trainer.max_steps=5", "--trainer.max_epochs=-1"], "4 per epoch, 5"),
        (["--trainer.limit_train_batches=0.5"], "3 per epoch, 6"),
    ):
        done = precis("fit", "--config", tiny_config, "--run_dir", "runs/dry", "--dry-run", *arguments).succeeded()
        for part in ("batch.source", "[4, ", f"{steps} in all", "one validation"):
            assert part in done.out
    precis("fit", "--run", run_folder, "--dry-run").succeeded()
    precis("test", "--run", run_folder, "--dry-run").refused("--dry-run")
    precis("fit", "--config", tiny_config, "--run_dir", "fast", "--trainer.fast_dev_run=1").succeeded()
    assert contents(tmp_path) == before and list(tmp_path.iterdir()) == [run_folder]


def test_training_by_the_rewards_of_a_page_goes_on_between_two_updates(tiny_config, tmp_path, precis):
    page = (ROOT / "docs" / "coming_from" / "trl.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```yaml\n(.*?)^```", page, flags=re.S | re.M)
    content = yaml.safe_load(tiny_config.read_text(encoding="utf-8"))
    content["trainer"] |= yaml.safe_load(shown)["trainer"] | {"val_check_interval": 5}
    config = write(tmp_path / "config.yaml", content | {"previews": 2})
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    precis("fit", "--config", config, "--run_dir", whole, "--dry-run").succeeded()
    assert list(tmp_path.iterdir()) == [config]  # nor is a reference written
    precis("fit", "--config", config, "--run_dir", whole, "--trainer.max_steps", 8).succeeded()
    precis("fit", "--config", config, "--run_dir", parts, "--trainer.max_steps", 5).succeeded()
    precis("fit", "--run", parts, "--trainer.max_steps", 8).succeeded()
    assert_same_checkpoints(whole, parts)
    reference, resumed = ((run / "checkpoints" / "reference.ckpt").read_bytes() for run in (whole, parts))
    assert resumed == reference

    rows = [row for row in read_metrics(whole) if row.get("train/reward")]
    logged = {"kl", "clipped", "truncated", "no_signal", "reward_std", "reward/rougeL", "reward/LengthTarget"}
    assert len(rows) == 8 and all(rows[0][f"train/{name}"] for name in logged)
    assert float(rows[0]["train/kl"]) == 0 < float(rows[-1]["train/kl"])
    assert rows[0]["train/reward"] == rows[1]["train/reward"] != rows[2]["train/reward"]  # two updates

    (file,) = whole.glob("previews/step*/samples.jsonl")
    samples = read_lines(file)
    assert len(samples) == 8 and len({row["id"] for row in samples}) == 2  # four of each
    for row in samples:
        assert row["reward"] == pytest.approx(row["rougeL"] + 0.2 * row["LengthTarget"])
