"""Torn checkpoints, full disks, folders without permission: nothing earlier is lost, the message names the cause."""

import os
import resource
import shutil
import signal
import subprocess
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
import yaml
from conftest import assert_same_run, flip_a_byte, read_metrics, step_of

from datamodules.documents import UserError
from lightning_modules.checkpoints import find_damage
from precis.runs.checkpoint_files import WholeCheckpoints, _ErrorRecordingFile, check_writable, resumable


def checkpoint(step: int, size: int = 1000) -> dict:
    return {"global_step": step, "state_dict": {"weight": torch.full((size,), float(step))}}


def steps_in(folder: Path) -> dict[str, int]:
    return {path.name: step_of(path) for path in folder.iterdir()}


def save(folder: Path, *steps: int) -> None:
    for step in steps:
        WholeCheckpoints().save_checkpoint(checkpoint(step), folder / "checkpoints" / "last.ckpt")


def cut_in_half(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


@pytest.mark.parametrize("links", [True, False])
def test_the_one_before_stays(links, tmp_path, monkeypatch):
    folder = tmp_path / "checkpoints"
    if not links:
        monkeypatch.setattr(os, "link", Mock(side_effect=PermissionError(1, "Operation not permitted")))
    save(tmp_path, 1)
    assert steps_in(folder) == {"last.ckpt": 1}
    save(tmp_path, 2, 3)
    WholeCheckpoints().save_checkpoint(checkpoint(4), folder / "best.ckpt")
    assert steps_in(folder) == {"best.ckpt": 4, "last.ckpt": 3, "previous.ckpt": 2}
    if links:  # a process was killed between link and checkpoint
        (folder / "previous.ckpt").unlink()
        os.link(folder / "last.ckpt", folder / "previous.ckpt")
        save(tmp_path, 5)
        assert steps_in(folder) == {"best.ckpt": 4, "last.ckpt": 5, "previous.ckpt": 3}


def test_neither_a_file_that_may_not_grow_nor_ctrl_c_between_two_writes_costs_a_checkpoint(tmp_path, monkeypatch):
    """The limit of a process on the size of its files, as a full disk: an error in the middle of writing."""
    save(tmp_path, 1, 2)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(UserError) as raised:
            WholeCheckpoints().save_checkpoint(checkpoint(3, 1 << 20), tmp_path / "checkpoints" / "last.ckpt")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    for part in ("last.ckpt: the checkpoint of step 3 cannot be written (File too large)", "is unchanged; make room"):
        assert part in str(raised.value)
    assert steps_in(tmp_path / "checkpoints") == {"last.ckpt": 2, "previous.ckpt": 1}
    # Ctrl-C between two writes: torch then completes the archive, and fails
    path = tmp_path / "last.ckpt"
    WholeCheckpoints().save_checkpoint(checkpoint(1), path)
    before, calls = path.read_bytes(), []

    class InterruptedFile(_ErrorRecordingFile):
        def write(self, content):
            calls.append(super().write(content))
            if len(calls) == 4:
                raise KeyboardInterrupt  # after the bytes were written, and outside of what is recorded
            return calls[-1]

    monkeypatch.setattr("precis.runs.checkpoint_files._ErrorRecordingFile", InterruptedFile)
    with pytest.raises(KeyboardInterrupt):
        WholeCheckpoints().save_checkpoint(checkpoint(2), path)
    assert len(calls) >= 4 and path.read_bytes() == before


@pytest.mark.parametrize("damage, said", [(cut_in_half, "only a part of one"), (flip_a_byte, "is damaged")])
def test_a_broken_checkpoint_is_found_and_the_one_before_taken(damage, said, tmp_path):
    save(tmp_path, 1, 2)
    folder = tmp_path / "checkpoints"
    damage(folder / "last.ckpt")
    assert said in find_damage(folder / "last.ckpt") and find_damage(folder / "previous.ckpt") == ""
    with pytest.warns(UserWarning, match=rf"last.ckpt: .*{said}; continuing from the previous one, .*previous.ckpt"):
        assert resumable(tmp_path) == folder / "previous.ckpt"
    assert sorted(path.name for path in folder.iterdir()) == ["last.broken.ckpt", "previous.ckpt"]
    assert resumable(tmp_path) == folder / "previous.ckpt"
    save(tmp_path, 3)  # what is broken does not become the one before
    assert step_of(folder / "previous.ckpt") == 1


def test_without_a_whole_one_the_reasons_are_named_and_a_folder_that_can_be_written_to_is_as_it_was(tmp_path):
    check_writable(tmp_path / "new" / "run")
    (tmp_path / "checkpoints").mkdir()
    check_writable(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["checkpoints", "new"]
    with pytest.raises(UserError, match=r"last.ckpt: no checkpoint to resume from; pass --resume auto"):
        resumable(tmp_path)
    save(tmp_path, 1, 2)
    for name in ("last", "previous"):
        cut_in_half(tmp_path / "checkpoints" / f"{name}.ckpt")
    with pytest.raises(UserError, match=r"last.ckpt: .* only .*; .*previous.ckpt: .* only .*; start the run again"):
        resumable(tmp_path)


@pytest.mark.integration
@pytest.mark.parametrize("damage", [cut_in_half, Path.unlink])
def test_a_run_with_a_torn_checkpoint_ends_as_if_nothing_had_been(damage, trained, run_folder, precis):
    """The one before is of the first epoch: the second one is trained again."""
    damage(run_folder / "checkpoints" / "last.ckpt")
    said = pytest.warns(UserWarning, match=r"last.ckpt: .*only a part of one; continuing")
    with said if damage is cut_in_half else nullcontext():
        precis("fit", "--run", run_folder).succeeded()
    assert_same_run(run_folder, trained)


@pytest.mark.integration
@pytest.mark.parametrize("how", ["auto", "--config", "--run"])
def test_a_resumed_run_equals_one_that_had_not_stopped(how, tiny_config, trained, tmp_path, precis):
    run = tmp_path / "run"
    again = {"--config": ["--config", run / "config.yaml", "--resume", "true"], "--run": ["--run", run]}
    start = again["auto"] = ["--config", tiny_config, "--run_dir", run, "--resume=auto"]
    run.mkdir()
    (run / "config.yaml").touch()  # what a start without checkpoint leaves
    (run / "metrics.csv").write_text("step,train/loss\n0,9\n")
    precis("fit", *start, "--trainer.max_epochs", 1).succeeded()
    with (run / "metrics.csv").open("a", encoding="utf-8") as file:  # logged after the checkpoint, then interrupted
        file.write("1,7" + "," * (len(read_metrics(run)[0]) - 2) + "\n")
    precis("fit", *again[how], "--trainer.max_epochs", 2).succeeded()
    assert_same_run(run, trained)
    ours, theirs = (yaml.safe_load((folder / "config.yaml").read_text()) for folder in (run, trained))
    assert ours | {"run_dir": None, "previews": None} == theirs | {"run_dir": None, "previews": None}
    # and once more, now that there is nothing left to do
    precis("fit", "--run", run).succeeded()
    assert_same_run(run, trained)


@pytest.mark.integration
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mounts a disk")
def test_a_disk_that_is_full_while_training_ends_the_run_and_room_lets_it_go_on(trained, tiny_config, tmp_path, precis):
    disk, size = tmp_path / "disk", (trained / "checkpoints" / "last.ckpt").stat().st_size
    disk.mkdir()
    room = 4 * size  # for the best, the last and what is being written in its place, not for the one before too
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={room}", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("a disk cannot be mounted here")
    try:
        run, ballast = disk / "run", disk / "ballast"
        precis("fit", "--config", tiny_config, "--run_dir", run, "--trainer.max_epochs", 1).succeeded()
        ballast.write_bytes(b"x" * (shutil.disk_usage(disk).free - size // 2))
        kept = (run / "checkpoints" / "last.ckpt").read_bytes()
        done = precis("fit", "--run", run, "--trainer.max_epochs", 2)
        done.refused("cannot be written (No space left on device)", "make room")
        assert done.err.count("precis: error") == 1
        assert (run / "checkpoints" / "last.ckpt").read_bytes() == kept
        ballast.unlink()
        precis("fit", "--run", run, "--trainer.max_epochs", 2).succeeded()
        assert_same_run(run, trained)
    finally:
        subprocess.run(["umount", disk], check=True)
