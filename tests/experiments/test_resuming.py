"""A run that was killed, moved or started twice ends as if nothing had happened."""

import csv
import signal
from pathlib import Path

import pytest
import torch

KILL = int(signal.SIGKILL)


@pytest.fixture(scope="module")
def one_epoch(tmp_path_factory, tiny_config) -> Path:
    """An uninterrupted run of one epoch, limited by its number of steps. Read it, do not write to it."""
    from experiments.cli import main

    folder = tmp_path_factory.mktemp("one-epoch") / "run"
    assert main(["fit", f"--config={tiny_config}", f"--run_dir={folder}", "--trainer.max_steps=7"]) == 0
    return folder


def rows_of(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def assert_same_run(run: Path, whole: Path) -> None:
    """The weights of last and best checkpoint, and every logged row, are those of the uninterrupted run."""
    assert rows_of(run) == rows_of(whole)
    for name in ("last.ckpt", "best.ckpt"):
        ours, theirs = (torch.load(folder / "checkpoints" / name, weights_only=True) for folder in (run, whole))
        assert ours["global_step"] == theirs["global_step"], name
        assert all(torch.equal(tensor, theirs["state_dict"][key]) for key, tensor in ours["state_dict"].items()), name


# Killed in a validation


def test_the_last_validation_is_run_again(tiny_config, one_epoch, tmp_path, precis, in_a_process):
    """All steps are done: without its validation, the run would end without a best checkpoint."""
    run = tmp_path / "run"
    kill = ["--trainer.callbacks+=interrupting.Interrupt", f"--trainer.callbacks.number={KILL}"]
    limits = ["--trainer.max_steps=7", "--trainer.callbacks.validation=1"]
    status, output = in_a_process("fit", f"--config={tiny_config}", f"--run_dir={run}", *kill, *limits)
    assert status == -KILL, output
    assert torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 7
    assert not (run / "checkpoints" / "best.ckpt").exists()
    done = precis("fit", "--run", run, "--trainer.callbacks=[]")
    assert done.status == 0, done.err
    assert_same_run(run, one_epoch)


def test_a_validation_within_the_run_is_run_again(tiny_config, trained, tmp_path, precis, in_a_process):
    run = tmp_path / "run"
    kill = ["--trainer.callbacks+=interrupting.Interrupt", f"--trainer.callbacks.number={KILL}"]
    limits = ["--save_every=7", "--trainer.callbacks.validation=1"]
    status, output = in_a_process("fit", f"--config={tiny_config}", f"--run_dir={run}", *kill, *limits)
    assert status == -KILL, output
    assert torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 7
    done = precis("fit", "--run", run, "--trainer.callbacks=[]")
    assert done.status == 0, done.err
    assert_same_run(run, trained)


@pytest.mark.parametrize("changed", ["--trainer.limit_val_batches=0", "--trainer.check_val_every_n_epoch=2"])
def test_an_outstanding_validation_that_was_switched_off_trains_no_further(
    changed, tiny_config, tmp_path, precis, in_a_process
):
    run = tmp_path / "run"
    kill = ["--trainer.callbacks+=interrupting.Interrupt", f"--trainer.callbacks.number={KILL}"]
    limits = ["--trainer.max_steps=7", "--trainer.callbacks.validation=1"]
    assert in_a_process("fit", f"--config={tiny_config}", f"--run_dir={run}", *kill, *limits)[0] == -KILL
    done = precis("fit", "--run", run, "--trainer.callbacks=[]", changed)
    assert done.status == 0, done.err
    assert torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 7
    assert len([row for row in rows_of(run) if row["train/loss"]]) == 7


# Rows of metrics.csv


def test_the_row_of_the_step_just_saved_is_not_lost(tiny_config, trained, tmp_path, precis, in_a_process):
    """Lightning logs a step after its callbacks, so that this row comes after the checkpoint of the same step."""
    run = tmp_path / "run"
    kill = ["--trainer.callbacks+=interrupting.KillAfterSave", "--trainer.callbacks.step=4"]
    status, output = in_a_process("fit", f"--config={tiny_config}", f"--run_dir={run}", *kill, "--save_every=4")
    assert status == -KILL, output
    assert [row["step"] for row in rows_of(run)] == ["0", "1", "2"]
    done = precis("fit", "--run", run, "--trainer.callbacks=[]")
    assert done.status == 0, done.err
    assert_same_run(run, trained)
