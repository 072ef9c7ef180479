"""`precis fit --dry-run`: what it reports, and that it writes nothing."""

from pathlib import Path

import pytest


def test_a_dry_run_reports_shapes_and_steps_and_writes_nothing(tiny_config, tmp_path, precis, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = precis("fit", "--config", tiny_config, "--run_dir", "runs/dry", "--dry-run")
    assert done.status == 0, done.err
    assert list(tmp_path.iterdir()) == []
    assert "batch.source" in done.out and "[4, " in done.out
    assert "7 per epoch, 14 in all" in done.out  # 26 documents in batches of 4, two epochs
    assert "a validation" in done.out and ", 2 times" in done.out


def test_accumulated_batches_are_one_step(tiny_config, tmp_path, precis, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ("--trainer.accumulate_grad_batches=2", "--trainer.max_steps=5", "--trainer.max_epochs=-1")
    done = precis("fit", "--config", tiny_config, "--dry-run", *arguments)
    assert "4 per epoch, 5 in all" in done.out, done.err


@pytest.mark.parametrize(
    "arguments, steps, validations",
    [
        (["--trainer.limit_train_batches=4"], "4 per epoch, 8 in all", 2),
        (["--trainer.limit_train_batches=0.5"], "3 per epoch, 6 in all", 2),
        (["--trainer.val_check_interval=3"], "7 per epoch, 14 in all", 4),
        (["--trainer.val_check_interval=0.5"], "7 per epoch, 14 in all", 4),
        (["--trainer.val_check_interval=4"], "7 per epoch, 14 in all", 2),  # the interval starts anew in every epoch
        (["--trainer.val_check_interval=4", "--trainer.check_val_every_n_epoch=null"], "7 per epoch, 14 in all", 3),
        (["--trainer.check_val_every_n_epoch=2"], "7 per epoch, 14 in all", 1),
        (["--trainer.val_check_interval=3", "--trainer.max_steps=12"], "7 per epoch, 12 in all", 3),
        # an epoch of 7 batches is 4 steps; two further steps are 4 batches
        (
            ["--trainer.accumulate_grad_batches=2", "--trainer.max_steps=6", "--trainer.val_check_interval=4"],
            "4 per epoch, 6 in all",
            2,
        ),
    ],
)
def test_limits_and_intervals_count(arguments, steps, validations, tiny_config, tmp_path, precis, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = precis("fit", "--config", tiny_config, "--dry-run", *arguments)
    assert steps in done.out and f", {validations} times" in done.out, done.out + done.err


def test_validations_that_are_spaced_by_time_are_not_counted(tiny_config, tmp_path, precis, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = precis("fit", "--config", tiny_config, "--dry-run", "--trainer.val_check_interval=00:00:15:00")
    assert done.status == 0 and "a validation" in done.out and " times" not in done.out, done.out + done.err


def test_an_existing_run_is_left_as_it_is(tiny_config, run_folder, precis):
    def state() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in run_folder.rglob("*") if path.is_file()}

    before = state()
    assert precis("fit", "--run", run_folder, "--dry-run").status == 0
    assert state() == before


@pytest.mark.parametrize("command", ["test", "validate"])
def test_other_commands_have_no_dry_run(command, run_folder, precis):
    done = precis(command, "--run", run_folder, "--dry-run")
    assert done.status == 1 and "--dry-run" in done.err
