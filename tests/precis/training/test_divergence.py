"""Training that diverges ends, and weights that are not finite are not scored."""

import pytest
import torch
from conftest import write

from lightning_modules.checkpoints import find_not_finite
from precis.runs.run_state import read_state

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("trusted")]


@pytest.mark.parametrize("log_every, save_every, problem, step", [
    (1, 4, "the loss is nan", 7),
    (4, 2, "the weights are not finite", 6),
], ids=["loss", "checkpoint"])  # fmt: skip
def test_training_that_diverges_keeps_the_last_finite_weights(
    log_every, save_every, problem, step, tiny_config, tmp_path, precis
):
    run, diverge = tmp_path / "run", ["--trainer.callbacks+=interrupting.Diverge", "--trainer.callbacks.step=5"]
    flags = [f"--trainer.log_every_n_steps={log_every}", f"--save_every={save_every}"]
    precis("fit", "--config", tiny_config, "--run_dir", run, *diverge, *flags).refused(
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
    text = write(tmp_path / "text.txt", "It rained.")
    commands = [[name, "--run", run_folder] for name in ("test", "validate", "predict")]
    commands += [
        ["summarize", "--checkpoint", run_folder, text],
        ["export", run_folder, "--out", tmp_path / "exported"],
    ]
    for command in commands:
        precis(*command).refused(f"{best}: training has diverged, {name} is not finite")
    assert not (tmp_path / "exported").exists()
