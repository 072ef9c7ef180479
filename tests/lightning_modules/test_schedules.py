import pytest
import torch
from pytorch_lightning.callbacks import GradientAccumulationScheduler
from pytorch_lightning.demos.boring_classes import BoringModel
from quiet_trainer import quiet_trainer

from datamodules.documents import UserError
from lightning_modules.options import AdamWOptions, EncoderAdamWOptions
from lightning_modules.schedules import scheduled, steps_needed, training_steps


class Scheduled(BoringModel):
    def configure_optimizers(self):
        self.steps = training_steps(self.trainer)
        return scheduled(torch.optim.SGD(self.parameters(), 0.1), [lambda step: 1 - step / self.steps])


def test_training_has_as_many_steps_as_its_limits_say_and_a_schedule_needs_an_end(tmp_path, monkeypatch):
    def steps(**limits) -> int:
        model = Scheduled()
        quiet_trainer(default_root_dir=tmp_path, limit_val_batches=0, limit_train_batches=3, **limits).fit(model)
        return model.steps

    assert steps(max_steps=2) == 2 and steps(max_epochs=2) == 6
    assert steps(max_epochs=2, callbacks=GradientAccumulationScheduler({1: 2})) == 3 + 2
    for limits in ({"max_epochs": -1}, {"max_time": "00:00:00:05"}):
        with pytest.raises(UserError, match=r"set trainer\.max_steps or trainer\.max_epochs"):
            steps(**limits)
    monkeypatch.setattr("lightning_modules.schedules.training_steps", lambda trainer: 8)
    for options, steps in [
        (AdamWOptions(schedule="constant", warmup_steps=5), 1),
        (AdamWOptions(schedule="constant"), 8),
        (EncoderAdamWOptions(schedule="inverse_root", warmup_steps=5, encoder_warmup_steps=0.5), 8),
        (AdamWOptions(warmup_steps=0), 8),
    ]:
        assert steps_needed(None, options) == steps
