import warnings

import pytest
import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.callbacks import ModelCheckpoint
from quiet_trainer import quiet_trainer

from callbacks import MonitorCheck


class Scored(LightningModule):
    """Logs a training loss and a validation score of one value for each epoch."""

    language = "en"

    def __init__(self, losses: list[float], scores: list[float]) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.losses, self.scores = losses, scores

    def training_step(self, batch, batch_idx):
        self.log("train/loss", self.losses[self.current_epoch], batch_size=1)
        return self.weight

    def validation_step(self, batch, batch_idx):
        self.log("val/rouge1", self.scores[self.current_epoch], batch_size=1)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters())


def warned(folder, losses: list[float], scores: list[float]) -> list[str]:
    """Return the warnings about scores in training with these values."""
    saving = ModelCheckpoint(folder, monitor="val/rouge1", mode="max")
    trainer = quiet_trainer(MonitorCheck(), saving, max_epochs=len(losses), enable_checkpointing=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(Scored(losses, scores), [0], [0])
    return [str(warning.message) for warning in caught if "val/rouge1" in str(warning.message)]


def test_a_score_that_never_moves_while_the_loss_falls_is_one_warning(tmp_path):
    (warning,) = warned(tmp_path, [5.0, 4.9, 4.8, 4.7, 4.6, 3.0, 2.0], [0.0] * 7)
    assert warning == (
        "checkpoint.monitor val/rouge1 is 0 in all 6 validations, while train/loss falls from 5 to 3, so that no "
        "checkpoint is better than the first; set --data.language if the texts are not in language 'en' (xx for any), "
        "or monitor another value with --checkpoint.monitor"
    )


@pytest.mark.parametrize(
    ("losses", "scores"),
    [([5.0, 4.0, 3.0, 2.0], [0.0] * 4), ([5.0] * 7, [0.0] * 7), ([5.0, 4.0, 3.0, 2.0, 1.0], [0.0] * 4 + [0.1])],
    ids=["few validations", "the loss stays", "the score moves"],
)
def test_no_other_score_is_a_warning(tmp_path, losses, scores):
    assert not warned(tmp_path, losses, scores)
