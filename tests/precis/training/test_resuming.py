"""A run that was killed, moved or started twice ends as if nothing had happened; one that diverges ends at once."""

import os
import shutil
import signal
import socket
from pathlib import Path

import interrupting
import pytest
import torch
from conftest import assert_same_run, flip_a_byte, read_metrics, run_main, step_of, wait_until, write

from lightning_modules.checkpoints import find_not_finite
from precis.runs.run_state import read_state

KILL = int(signal.SIGKILL)
pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("trusted")]


def test_the_last_validation_is_run_again(tiny_config, tmp_path, precis, in_a_process):
    """All steps are done: without its validation, the run would end without a best checkpoint."""
    run, whole = tmp_path / "run", tmp_path / "whole"
    start = ["fit", f"--config={tiny_config}", "--trainer.max_steps=7", "--trainer.precision=64-true"]
    precis(*start, f"--run_dir={whole}").succeeded()
    kill = ["--trainer.callbacks+=interrupting.Interrupt", f"--trainer.callbacks.number={KILL}"]
    status, output = in_a_process(*start, f"--run_dir={run}", *kill, "--trainer.callbacks.validation=1")
    assert status == -KILL, output
    assert step_of(run / "checkpoints" / "last.ckpt") == 7
    assert not (run / "checkpoints" / "best.ckpt").exists()
    precis("fit", "--run", run, "--trainer.callbacks=[]").succeeded()
    assert_same_run(run, whole)


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
        precis("fit", *second).refused(f"{run}: {owner} is training this run; wait until it ends, stop it, or pass")
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
    run = Path(shutil.copytree(one_validation, tmp_path / "run"))
    return run, run / "checkpoints" / "last.ckpt", run / "checkpoints" / "best.ckpt"


def test_a_run_that_was_moved_keeps_its_best_model_unless_it_is_damaged(files, precis):
    run, last, best = files
    done = precis("fit", "--run", run, "--trainer.max_epochs=2").succeeded()
    assert "dirpath has changed" not in done.err
    assert (step_of(last), step_of(best)) == (14, 7)  # without its score, the next one would replace the best
    flip_a_byte(best)
    precis("test", "--run", run).refused(f"{best}: ", "is damaged; give another one of the run")
    with pytest.warns(UserWarning, match=r"best.ckpt: .* is damaged; the next validation writes a best model again"):
        precis("fit", "--run", run, "--trainer.max_epochs=3").succeeded()
    assert step_of(best) == 21 and (run / "checkpoints" / "best.broken.ckpt").is_file()


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


@pytest.mark.parametrize("log_every, save_every, problem, step", [
    (1, 4, "the loss is nan", 7),
    (4, 2, "the weights are not finite", 6),
], ids=["loss", "checkpoint"])  # fmt: skip
def test_diverged_training_keeps_finite_weights(log_every, save_every, problem, step, tiny_config, tmp_path, precis):
    run, flags = tmp_path / "run", [f"--trainer.log_every_n_steps={log_every}", f"--save_every={save_every}"]
    flags += ["--trainer.callbacks+=interrupting.Diverge", "--trainer.callbacks.step=5"]
    precis("fit", "--config", tiny_config, "--run_dir", run, *flags).refused(
        f"precis: error: training has diverged: {problem}",
        f" at step {step}, with a learning rate of 0.15",
        "the last finite one that was logged is ",
        f"{run}/checkpoints/last.ckpt has the last weights that were saved",
    )
    saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] == 4 and not find_not_finite(saved["state_dict"])
    assert not (run / "checkpoints" / "best.ckpt").exists()
    assert read_state(run) == {"state": "diverged", "step": step}


def test_one_loss_that_is_not_finite_does_not_end_training(tiny_config, tmp_path, precis, monkeypatch):
    """As in half precision, where the gradient scaler leaves the step out."""
    from pytorch_lightning.trainer.connectors.logger_connector import logger_connector

    metrics = logger_connector._LoggerConnector.callback_metrics.fget
    nan = {"train/loss": torch.tensor(float("nan"))}
    for steps, status in ({3}, 0), ({3, 4}, 1):
        changed = property(lambda self, steps=steps: metrics(self) | (nan if self.trainer.global_step in steps else {}))
        monkeypatch.setattr(logger_connector._LoggerConnector, "callback_metrics", changed)
        done = precis("fit", "--config", tiny_config, "--run_dir", tmp_path / str(status), "--trainer.max_epochs=1")
        assert done.status == status, done.err


def test_weights_that_are_not_finite_are_not_scored(run_folder, tmp_path, precis):
    best, name = run_folder / "checkpoints" / "best.ckpt", "network.embedding.weight"
    precis("export", run_folder, "--out", tmp_path / "finite").succeeded()
    content = torch.load(best, weights_only=True)
    content["state_dict"][name][3, 1] = float("inf")
    torch.save(content, best)
    commands = [[name, "--run", run_folder] for name in ("test", "validate", "predict")]
    commands.append(["summarize", "--checkpoint", run_folder, "It rained."])
    commands.append(["export", run_folder, "--out", tmp_path / "exported"])
    for command in commands:
        precis(*command).refused(f"{best}: training has diverged, {name} is not finite")
    assert not (tmp_path / "exported").exists()
