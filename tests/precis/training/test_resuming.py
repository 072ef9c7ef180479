"""A run that was killed, moved or started twice ends as if nothing had happened."""

import os
import shutil
import signal
import socket
from pathlib import Path

import interrupting
import pytest
import torch
from conftest import assert_same_checkpoints, read_metrics, run_main, wait_until

KILL = int(signal.SIGKILL)
pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("trusted")]


@pytest.fixture(scope="module")
def one_epoch(tmp_path_factory, tiny_config) -> Path:
    """An uninterrupted run of one epoch, limited by its number of steps. Read it, do not write to it."""
    folder = tmp_path_factory.mktemp("one-epoch") / "run"
    assert run_main("fit", f"--config={tiny_config}", f"--run_dir={folder}", "--trainer.max_steps=7") == 0
    return folder


def assert_same_run(run: Path, whole: Path) -> None:
    """Check that the weights of last and best checkpoint and all logged rows equal those of the uninterrupted run."""
    assert read_metrics(run) == read_metrics(whole)
    assert_same_checkpoints(run, whole, "last", "best")


def test_the_last_validation_is_run_again(tiny_config, one_epoch, tmp_path, precis, in_a_process):
    """All steps are done: without its validation, the run would end without a best checkpoint."""
    run = tmp_path / "run"
    kill = ["--trainer.callbacks+=interrupting.Interrupt", f"--trainer.callbacks.number={KILL}"]
    limits = ["--trainer.max_steps=7", "--trainer.callbacks.validation=1"]
    status, output = in_a_process("fit", f"--config={tiny_config}", f"--run_dir={run}", *kill, *limits)
    assert status == -KILL, output
    assert torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 7
    assert not (run / "checkpoints" / "best.ckpt").exists()
    precis("fit", "--run", run, "--trainer.callbacks=[]").succeeded()
    assert_same_run(run, one_epoch)


def test_the_row_of_the_step_just_saved_is_not_lost(tiny_config, trained, tmp_path, precis, in_a_process):
    """Lightning logs a step after its callbacks, so that this row comes after the checkpoint of the same step."""
    run = tmp_path / "run"
    kill = ["--trainer.callbacks+=interrupting.KillAfterSave", "--trainer.callbacks.step=4"]
    status, output = in_a_process("fit", f"--config={tiny_config}", f"--run_dir={run}", *kill, "--save_every=4")
    assert status == -KILL, output
    assert [row["step"] for row in read_metrics(run)] == ["0", "1", "2"]
    precis("fit", "--run", run, "--trainer.callbacks=[]").succeeded()
    assert_same_run(run, trained)


def test_one_process_trains_a_run_and_its_death_frees_the_run(tiny_config, trained, tmp_path, precis, server):
    """A worker of the data outlives its killed parent for seconds; the lock does not stay with it."""
    run, hold = tmp_path / "run", tmp_path / "hold"
    arguments = ["fit", f"--config={tiny_config}", f"--run_dir={run}", "--data.num_workers=1", "--save_every=2"]
    arguments += ["--trainer.callbacks+=interrupting.Hold", f"--trainer.callbacks.folder={hold}"]
    arguments += ["--trainer.callbacks.batch=3"]
    first = server.Process(target=interrupting.run_command, args=(arguments, tmp_path / "output.txt"))
    first.start()
    wait_until((hold / "holding").exists)
    rows = (run / "metrics.csv").read_text()
    for second in (["--run", run], ["--config", tiny_config, "--run_dir", run, "--resume", "auto"]):
        refused = precis("fit", *second)
        assert refused.status == 1, refused
        owner = f"process {(hold / 'holding').read_text()} on {socket.gethostname()}"
        assert f"{run}: {owner} is training this run; wait until it ends, stop it, or pass" in refused.err
    assert precis("test", "--run", run, "--trainer.callbacks=[]").status == 0  # reading is free
    assert (run / "metrics.csv").read_text() == rows
    os.kill(first.pid, signal.SIGKILL)
    first.join()
    precis("fit", "--run", run, "--trainer.callbacks=[]", "--data.num_workers=0").succeeded()
    assert_same_run(run, trained)


@pytest.fixture(scope="module")
def no_better(tmp_path_factory, tiny_config) -> Path:
    """A run of one epoch whose later validations are as good as its first: nothing is learned. Copy it."""
    folder = tmp_path_factory.mktemp("no-better") / "run"
    flags = ["--optimizer=SGD", "--optimizer.lr=0", "--trainer.max_epochs=1"]
    assert run_main("fit", f"--config={tiny_config}", f"--run_dir={folder}", *flags) == 0
    return folder


def step_of(path: Path) -> int:
    return torch.load(path, weights_only=True)["global_step"]


def flip_a_byte(path: Path) -> None:
    """Damage a weight."""
    content = bytearray(path.read_bytes())
    weight = next(iter(torch.load(path, weights_only=True)["state_dict"].values()))
    content[content.index(weight.numpy().tobytes()) + 3] ^= 0x40
    path.write_bytes(content)


def test_a_run_that_was_moved_keeps_its_best_model(no_better, tmp_path, precis):
    run = shutil.copytree(no_better, tmp_path / "elsewhere")
    done = precis("fit", "--run", run, "--trainer.max_epochs=2")
    assert done.status == 0 and "dirpath has changed" not in done.err, done.err
    assert step_of(run / "checkpoints" / "last.ckpt") == 14
    assert step_of(run / "checkpoints" / "best.ckpt") == 7  # without its score, the next one would replace it


def test_a_damaged_best_model_is_not_scored_and_is_replaced_by_the_next(no_better, tmp_path, precis):
    run = shutil.copytree(no_better, tmp_path / "run")
    best = run / "checkpoints" / "best.ckpt"
    flip_a_byte(best)
    precis("test", "--run", run).refused(f"{best}: ", "is damaged; give another one of the run")
    with pytest.warns(UserWarning, match=r"best.ckpt: .* is damaged; the next validation writes a best model again"):
        assert precis("fit", "--run", run, "--trainer.max_epochs=2").status == 0
    assert step_of(best) == 14 and (run / "checkpoints" / "best.broken.ckpt").is_file()


def test_a_checkpoint_leaves_files_outside_of_its_folder_alone(no_better, tmp_path, precis):
    """Lightning removes best models that are replaced, and damaged ones are renamed."""
    run = shutil.copytree(no_better, tmp_path / "run")
    for name in ("thesis.txt", "other.ckpt"):
        (tmp_path / name).write_bytes((run / "checkpoints/best.ckpt").read_bytes() if ".ckpt" in name else b"text")
    last = run / "checkpoints" / "last.ckpt"
    content = torch.load(last, weights_only=True)
    (state,) = content["callbacks"].values()
    outside = [str(tmp_path / "thesis.txt"), f"{state['dirpath']}/../../other.ckpt"]
    state["best_k_models"] = {path: torch.tensor(-5.0) for path in outside}
    state["best_model_path"] = state["kth_best_model_path"] = outside[1]
    torch.save(content, last)
    with pytest.warns(UserWarning, match="not found; the next validation writes a best model again"):
        assert precis("fit", "--run", run, "--trainer.max_epochs=2").status == 0
    assert {path.name for path in tmp_path.iterdir()} == {"run", "thesis.txt", "other.ckpt"}


def test_a_checkpoint_that_lightning_cannot_restore_is_named(no_better, tmp_path, precis):
    run = shutil.copytree(no_better, tmp_path / "run")
    last, best = (run / "checkpoints" / name for name in ("last.ckpt", "best.ckpt"))
    content = torch.load(last, weights_only=True)
    torch.save(content | {"optimizer_states": [{"param_groups": 3}]}, last)
    done = precis("fit", "--run", run, "--trainer.max_epochs=2")
    assert done.status == 1 and f"{last}: cannot be restored (" in done.err and done.err.endswith("of the run\n")
    del content["pytorch-lightning_version"]
    torch.save(content, best)
    precis("test", "--run", run).refused(f"{best}: cannot be restored (KeyError: 'pytorch-lightning")


def test_a_run_folder_that_is_removed_during_training_ends_the_run(tiny_config, tmp_path, precis):
    run = tmp_path / "run"
    for where in ("--trainer.callbacks.batch=3", "--trainer.callbacks.validation=0", "--trainer.callbacks.end=true"):
        remove = ["--trainer.callbacks+=interrupting.RemoveRun", f"--trainer.callbacks.run={run}", where]
        done = precis("fit", "--config", tiny_config, "--run_dir", run, "--trainer.max_epochs=1", *remove)
        assert done.status == 1, (where, done.err)
        assert f"precis: error: {run}: the run folder was removed while the run was training" in done.err
        assert not run.exists(), where
