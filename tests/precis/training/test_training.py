"""`precis fit` checks values before training, and reports what it does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import wandb
import yaml
from cases import CASES
from conftest import contents, read_metrics, write
from wandb_file import OfflineRun

from precis.sweeping.sweep_folder import last_metrics

pytestmark = pytest.mark.integration

EARLY = ["--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.mode=min"]


@pytest.mark.parametrize("flags, message", [
    (["--checkpoint.monitor=val/rogue1"], "checkpoint.monitor is 'val/rogue1', which this run does not log"),
    ([*EARLY, "--trainer.callbacks.monitor=loss"], "monitor of EarlyStopping is 'loss', which this run does not"),
], ids=["checkpoint", "early-stopping"])  # fmt: skip
def test_a_value_that_is_never_logged_is_found_before_training(flags, message, tiny_config, tmp_path, precis):
    run = tmp_path / "run"
    guess = ["did you mean val/rouge1?"] if "rogue1" in message else []
    done = precis("fit", "--config", tiny_config, "--run_dir", run, *flags)
    done.refused(message, "it logs val/coverage, val/length, val/loss, val/nll", *guess)
    assert not run.exists(), "no step was taken"


def test_a_value_of_training_is_checked_after_the_first_step(tiny_config, tmp_path, precis):
    flags = ["--checkpoint.monitor=train/lss", "--trainer.accumulate_grad_batches=2"]
    done = precis("fit", "--config", tiny_config, "--run_dir", tmp_path / "run", *flags)
    done.refused("checkpoint.monitor is 'train/lss'", "did you mean train/loss?")
    assert not list(tmp_path.rglob("*.ckpt"))


def test_the_data_of_another_paper_is_refused(tiny_config, corpus_files, tmp_path, precis):
    config = yaml.safe_load(tiny_config.read_text())
    graphsum = next(case for case in CASES if case.name == "graphsum")
    arguments = [argument for argument in graphsum.arguments(corpus_files) if argument.startswith("--data")]
    path = write(tmp_path / "config.yaml", {name: value for name, value in config.items() if name != "data"})
    message = "PointerGenerator reads PointerGeneratorBatch, but GraphSumData makes GraphSumBatch; give --data the "
    precis("fit", "--config", path, *arguments, "--run_dir", tmp_path / "run").refused(message)
    assert not (tmp_path / "run").exists()


def test_a_run_that_ended_early_is_trained_on_only_if_that_is_asked_for(tiny_config, tmp_path, precis, caplog):
    run = tmp_path / "run"
    flags = [*EARLY, "--trainer.callbacks.monitor=train/loss", "--trainer.callbacks.stopping_threshold=1000"]
    assert precis("fit", "--config", tiny_config, "--run_dir", run, *flags).status == 0
    assert f"run folder: {run}" in caplog.text
    assert "training ended early after step 7: Stopping threshold reached: train/loss = " in caplog.text
    before = contents(run)
    caplog.clear()
    precis("fit", "--resume", "auto", "--config", tiny_config, "--run_dir", run).succeeded()
    assert f"{run}: this run was ended early after step 7 (Stopping threshold reached: train/loss = " in caplog.text
    assert f"To continue training anyway: precis fit --run {run} --resume true" in caplog.text
    assert contents(run) == before
    assert precis("fit", "--run", run, "--resume", "true").status == 0
    assert last_metrics(run).startswith("step 14, ")


def test_early_stopping_that_waits_for_min_epochs_has_not_ended_a_run(tiny_config, trained, tmp_path, precis):
    run = tmp_path / "run"
    flags = [*EARLY, "--trainer.callbacks.monitor=val/loss", "--trainer.callbacks.stopping_threshold=1000"]
    limits = ["--trainer.min_epochs=2", "--trainer.max_steps=7"]
    assert precis("fit", "--config", tiny_config, "--run_dir", run, *flags, *limits).status == 0
    assert precis("fit", "--run", run, "--trainer.max_steps=-1").status == 0
    assert read_metrics(run) == read_metrics(trained)


def test_a_logger_of_the_command_line_is_added(tiny_config, tmp_path, precis):
    run, other = tmp_path / "run", tmp_path / "other"
    flags = ["--trainer.logger=CSVLogger", f"--trainer.logger.save_dir={other}", "--trainer.max_epochs=1"]
    precis("fit", "--config", tiny_config, "--run_dir", run, *flags, "--wandb=offline").succeeded()
    assert len(list((run / "wandb").glob("offline-run-*/*.wandb"))) == 1
    (theirs,) = other.rglob("metrics.csv")
    assert read_metrics(theirs.parent) == read_metrics(run) != []


def test_classes_in_the_working_folder_are_found(tiny_config, tmp_path):
    hello = "    def on_train_start(self, trainer, pl_module):\n        print('hello from the working folder')\n"
    write(tmp_path / "my_code.py", f"from pytorch_lightning import Callback\nclass Hello(Callback):\n{hello}")
    root = Path(__file__).parents[3]
    # as the console script starts it: the working folder is not on the path
    start = "import sys; sys.path = [p for p in sys.path if p]; "
    start += "from precis.command_line.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", start, "fit", f"--config={tiny_config}", "--run_dir=run", "--trainer.max_steps=1"]
    environment = os.environ | {"PYTHONPATH": str(root)}
    command.append("--trainer.callbacks+=my_code.Hello")
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "hello from the working folder" in done.stdout, done.stderr
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["trainer"]["callbacks"][0] == {
        "class_path": "my_code.Hello"
    }


def test_the_summary_at_wandb_equals_that_of_the_best_checkpoint(tiny_config, tmp_path, precis):
    run = tmp_path / "run"
    # the loss falls, so that the highest one is the first
    flags = ["--wandb=offline", "--checkpoint.monitor=val/loss", "--checkpoint.mode=max"]
    assert precis("fit", "--config", tiny_config, "--run_dir", run, *flags).status == 0
    assert precis("fit", "--run", run, "--trainer.max_epochs=3").status == 0  # it is kept where a run goes on
    wandb.teardown()  # its service writes a little later
    first, *later = (row for row in read_metrics(run) if row["val/loss"])
    assert len(later) == 2 and all(float(first["val/loss"]) > float(row["val/loss"]) for row in later)
    for place in sorted((run / "wandb").glob("offline-run-*")):  # what each start would leave on the server
        summary = OfflineRun(run, place.name).summary
        for name in ("val/loss", "val/rouge1", "val/length"):
            assert summary[name] == pytest.approx(float(first[name]))
        assert summary["best_step"] == 7
