"""A run that was killed, moved or started twice ends as if nothing had happened."""

import os
import shutil
import signal
import socket
from pathlib import Path

import interrupting
import pytest
import torch
from conftest import assert_same_checkpoints, flip_a_byte, read_metrics, run_main, step_of, wait_until, write

KILL = int(signal.SIGKILL)
pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("trusted")]


@pytest.fixture(scope="module")
def one_epoch(tmp_path_factory, tiny_config) -> Path:
    """An uninterrupted run of one epoch, limited by its number of steps. Read it, do not write to it."""
    folder = tmp_path_factory.mktemp("one-epoch") / "run"
    assert run_main("fit", f"--config={tiny_config}", f"--run_dir={folder}", "--trainer.max_steps=7") == 0
    return folder


def assert_same_run(run: Path, whole: Path) -> None:
    assert read_metrics(run) == read_metrics(whole)
    assert_same_checkpoints(run, whole, "last", "best")


def test_the_last_validation_is_run_again(tiny_config, one_epoch, tmp_path, precis, in_a_process):
    """All steps are done: without its validation, the run would end without a best checkpoint."""
    run = tmp_path / "run"
    kill = ["--trainer.callbacks+=interrupting.Interrupt", f"--trainer.callbacks.number={KILL}"]
    limits = ["--trainer.max_steps=7", "--trainer.callbacks.validation=1"]
    status, output = in_a_process("fit", f"--config={tiny_config}", f"--run_dir={run}", *kill, *limits)
    assert status == -KILL, output
    assert step_of(run / "checkpoints" / "last.ckpt") == 7
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
    arguments.append("--trainer.callbacks.batch=3")
    first = server.Process(target=interrupting.run_command, args=(arguments, tmp_path / "output.txt"))
    first.start()
    wait_until((hold / "holding").exists)
    rows = (run / "metrics.csv").read_text()
    for second in (["--run", run], ["--config", tiny_config, "--run_dir", run, "--resume", "auto"]):
        owner = f"process {(hold / 'holding').read_text()} on {socket.gethostname()}"
        message = f"{run}: {owner} is training this run; wait until it ends, stop it, or pass"
        precis("fit", *second).refused(message)
    precis("test", "--run", run, "--trainer.callbacks=[]").succeeded()  # reading is free
    assert (run / "metrics.csv").read_text() == rows
    os.kill(first.pid, signal.SIGKILL)
    first.join()
    precis("fit", "--run", run, "--trainer.callbacks=[]", "--data.num_workers=0").succeeded()
    assert_same_run(run, trained)


@pytest.fixture(scope="module")
def one_validation(tmp_path_factory, tiny_config) -> Path:
    """A run of one epoch whose next validations are as good as its first: nothing is learned."""
    folder = tmp_path_factory.mktemp("no-better") / "run"
    flags = ["--optimizer=SGD", "--optimizer.lr=0", "--trainer.max_epochs=1"]
    assert run_main("fit", f"--config={tiny_config}", f"--run_dir={folder}", *flags) == 0
    return folder


@pytest.fixture
def files(one_validation, tmp_path) -> tuple[Path, Path, Path]:
    """A copy of that run in another folder; its last and its best checkpoint."""
    run = Path(shutil.copytree(one_validation, tmp_path / "run"))
    return run, run / "checkpoints" / "last.ckpt", run / "checkpoints" / "best.ckpt"


def test_a_run_that_was_moved_keeps_its_best_model(files, precis):
    run, last, best = files
    done = precis("fit", "--run", run, "--trainer.max_epochs=2").succeeded()
    assert "dirpath has changed" not in done.err
    assert (step_of(last), step_of(best)) == (14, 7)  # without its score, the next one would replace the best


def test_a_damaged_best_model_is_not_scored_and_is_replaced_by_the_next(files, precis):
    run, _, best = files
    flip_a_byte(best)
    precis("test", "--run", run).refused(f"{best}: ", "is damaged; give another one of the run")
    with pytest.warns(UserWarning, match=r"best.ckpt: .* is damaged; the next validation writes a best model again"):
        precis("fit", "--run", run, "--trainer.max_epochs=2").succeeded()
    assert step_of(best) == 14 and (run / "checkpoints" / "best.broken.ckpt").is_file()


def test_a_checkpoint_leaves_files_outside_of_its_folder_alone(files, tmp_path, precis):
    """Lightning removes best models that are replaced, and damaged ones are renamed."""
    run, last, best = files
    write(tmp_path / "thesis.txt", "text")
    shutil.copy(best, tmp_path / "other.ckpt")
    content = torch.load(last, weights_only=True)
    (state,) = content["callbacks"].values()
    outside = [str(tmp_path / "thesis.txt"), f"{state['dirpath']}/../../other.ckpt"]
    state["best_k_models"] = {path: torch.tensor(-5.0) for path in outside}
    state["best_model_path"] = state["kth_best_model_path"] = outside[1]
    torch.save(content, last)
    with pytest.warns(UserWarning, match="not found; the next validation writes a best model again"):
        precis("fit", "--run", run, "--trainer.max_epochs=2").succeeded()
    assert {path.name for path in tmp_path.iterdir()} == {"run", "thesis.txt", "other.ckpt"}


def test_a_checkpoint_that_lightning_cannot_restore_is_named(files, precis):
    run, last, best = files
    content = torch.load(last, weights_only=True)
    torch.save(content | {"optimizer_states": [{"param_groups": 3}]}, last)
    done = precis("fit", "--run", run, "--trainer.max_epochs=2")
    done.refused(f"{last}: cannot be restored (")
    assert done.err.endswith("of the run\n")
    del content["pytorch-lightning_version"]
    torch.save(content, best)
    precis("test", "--run", run).refused(f"{best}: cannot be restored (KeyError: 'pytorch-lightning")


def test_a_run_folder_that_is_removed_during_training_ends_the_run(tiny_config, tmp_path, precis):
    run = tmp_path / "run"
    for where in ("--trainer.callbacks.batch=3", "--trainer.callbacks.validation=0", "--trainer.callbacks.end=true"):
        remove = ["--trainer.callbacks+=interrupting.RemoveRun", f"--trainer.callbacks.run={run}", where]
        done = precis("fit", "--config", tiny_config, "--run_dir", run, "--trainer.max_epochs=1", *remove)
        done.refused(f"precis: error: {run}: the run folder was removed while the run was training")
        assert not run.exists(), where
