"""`precis fit` checks values before training, and reports what it does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import wandb
import yaml
from conftest import change_config, contents, read_metrics, write
from wandb_file import OfflineRun

from precis.sweeping.sweep_folder import last_metrics

pytestmark = pytest.mark.integration

EARLY = ["--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.mode=min"]
VALIDATION = "it logs val/coverage, val/length, val/loss, val/nll"


@pytest.mark.parametrize("flags, starts, messages", [
    (["--checkpoint.monitor=val/rogue1"], False,
     ["checkpoint.monitor is 'val/rogue1', which this run does not log", "did you mean val/rouge1?", VALIDATION]),
    ([*EARLY, "--trainer.callbacks.monitor=loss"], False,
     ["monitor of EarlyStopping is 'loss', which this run does not", VALIDATION]),
    (["--checkpoint.monitor=train/lss", "--trainer.accumulate_grad_batches=2"], True,
     ["checkpoint.monitor is 'train/lss'", "did you mean train/loss?"]),
], ids=["checkpoint", "early-stopping", "value-of-training"])  # fmt: skip
def test_a_value_that_is_never_logged_is_found_before_training_or_after_its_first_step(
    flags, starts, messages, tiny_config, tmp_path, precis
):
    run = tmp_path / "run"
    precis("fit", "--config", tiny_config, "--run_dir", run, *flags).refused(*messages)
    assert run.exists() == starts and not list(tmp_path.rglob("*.ckpt"))


def test_the_data_of_another_paper_is_refused(tiny_config, corpus_files, tmp_path, precis):
    files = [f"--data.corpus.{split}={path}" for split, path in corpus_files.items()]
    data = ["--data=GraphSumData", "--data.corpus=Files", *files]
    message = "PointerGenerator reads PointerGeneratorBatch, but GraphSumData makes GraphSumBatch; give --data the "
    path = change_config(tiny_config, {"data": None}, tmp_path / "config.yaml")
    precis("fit", "--config", path, *data, "--run_dir", tmp_path / "run").refused(message)
    assert not (tmp_path / "run").exists()


def test_a_run_that_ended_early_is_trained_on_only_if_that_is_asked_for(tiny_config, tmp_path, precis, caplog):
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


def test_early_stopping_that_waits_for_min_epochs_has_not_ended_a_run(tiny_config, trained, tmp_path, precis):
    run = tmp_path / "run"
    flags = [*EARLY, "--trainer.callbacks.monitor=val/loss", "--trainer.callbacks.stopping_threshold=1000"]
    limits = ["--trainer.min_epochs=2", "--trainer.max_steps=7"]
    precis("fit", "--config", tiny_config, "--run_dir", run, *flags, *limits).succeeded()
    precis("fit", "--run", run, "--trainer.max_steps=-1").succeeded()
    assert read_metrics(run) == read_metrics(trained)


def test_classes_in_the_working_folder_are_found(tiny_config, tmp_path):
    hello = "    def on_train_start(self, trainer, pl_module):\n        print('hello from the working folder')\n"
    write(tmp_path / "my_code.py", f"from pytorch_lightning import Callback\nclass Hello(Callback):\n{hello}")
    # as the console script starts it: the working folder is not on the path
    start = "import sys; sys.path = [p for p in sys.path if p]; "
    start += "from precis.command_line.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", start, "fit", f"--config={tiny_config}", "--run_dir=run", "--trainer.max_steps=1"]
    command.append("--trainer.callbacks+=my_code.Hello")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "hello from the working folder" in done.stdout, done.stderr
    trainer = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["trainer"]
    assert trainer["callbacks"][0] == {"class_path": "my_code.Hello"}


def test_the_best_checkpoint_is_summarized_at_wandb_and_another_logger_is_added(tiny_config, tmp_path, precis):
    run, other = tmp_path / "run", tmp_path / "run" / "other"
    # the loss falls, so that the highest one is the first
    flags = ["--wandb=offline", "--checkpoint.monitor=val/loss", "--checkpoint.mode=max"]
    flags += ["--trainer.logger=CSVLogger", f"--trainer.logger.save_dir={other}"]
    precis("fit", "--config", tiny_config, "--run_dir", run, *flags).succeeded()
    assert len(list((run / "wandb").glob("offline-run-*/*.wandb"))) == 1
    (added,) = other.rglob("metrics.csv")
    assert read_metrics(added.parent) == read_metrics(run) != []
    precis("fit", "--run", run, "--trainer.max_epochs=3").succeeded()  # it is kept where a run goes on
    wandb.teardown()  # its service writes a little later
    first, *later = (row for row in read_metrics(run) if row["val/loss"])
    assert len(later) == 2 and all(float(first["val/loss"]) > float(row["val/loss"]) for row in later)
    for place in sorted((run / "wandb").glob("offline-run-*")):  # what each start would leave on the server
        summary = OfflineRun(run, place.name).summary
        assert summary["best_step"] == 7
        for name in ("val/loss", "val/rouge1", "val/length"):
            assert summary[name] == pytest.approx(float(first[name]))
