import pytest
import torch
from pytorch_lightning.demos.boring_classes import BoringModel
from quiet_trainer import quiet_trainer

from datamodules.documents import UserError
from lightning_modules.options import AdamWOptions, EncoderAdamWOptions
from lightning_modules.schedules import scheduled, steps_needed, training_steps


class Scheduled(BoringModel):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        self.steps = training_steps(self.trainer)
        return scheduled(optimizer, [lambda step: 1 - step / self.steps])


def fitted(folder, **limits):
    model = Scheduled()
    quiet_trainer(default_root_dir=folder, limit_val_batches=0, limit_train_batches=3, **limits).fit(model)
    return model


@pytest.mark.parametrize(("limits", "steps"), [({"max_steps": 2}, 2), ({"max_epochs": 2}, 6)])
def test_training_has_as_many_steps_as_its_limits_say(tmp_path, limits, steps):
    assert fitted(tmp_path, **limits).steps == steps


@pytest.mark.parametrize("limits", [{"max_epochs": -1}, {"max_time": "00:00:00:05"}])
def test_a_schedule_needs_an_end(tmp_path, limits):
    with pytest.raises(UserError, match=r"set trainer\.max_steps or trainer\.max_epochs"):
        fitted(tmp_path, **limits)


def test_a_fractional_warm_up_needs_the_number_of_steps(monkeypatch):
    monkeypatch.setattr("lightning_modules.schedules.training_steps", lambda trainer: 8)
    for options, steps in [
        (AdamWOptions(schedule="constant", warmup_steps=5), 1),
        (AdamWOptions(schedule="constant"), 8),
        (EncoderAdamWOptions(schedule="inverse_root", warmup_steps=5, encoder_warmup_steps=0.5), 8),
        (AdamWOptions(warmup_steps=0), 8),
    ]:
        assert steps_needed(None, options) == steps
