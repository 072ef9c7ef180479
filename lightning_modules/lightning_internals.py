"""What the suite reads and sets of Lightning beyond its documented interface.

`tests/lightning_modules/test_library_interfaces.py` names the version that this was written for.
"""

from math import ceil, inf
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import GradientAccumulationScheduler, WeightAveraging
from pytorch_lightning.loops.evaluation_loop import RestartStage
from torch import nn


def trainer_of(module: LightningModule) -> Trainer | None:
    """Return the trainer of a module, None outside of training and evaluation (where `module.trainer` raises)."""
    return module._trainer


def accumulates(trainer: Trainer) -> bool:
    """Return whether the gradient of this batch is only accumulated, with no optimizer step after it."""
    return trainer.fit_loop._should_accumulate()


def accumulation(trainer: Trainer, epoch: int) -> int:
    """Return the number of batches of an optimizer step in an epoch, which `GradientAccumulationScheduler` may set."""
    schedulers = [each for each in trainer.callbacks if isinstance(each, GradientAccumulationScheduler)]
    return schedulers[0].get_accumulate_grad_batches(epoch) if schedulers else trainer.accumulate_grad_batches


def steps_before(trainer: Trainer, epoch: int) -> float:
    """Return the number of optimizer steps before an epoch, the last of each of which may be smaller; inf for -1."""
    if epoch == -1 or trainer.num_training_batches == inf:
        return inf
    return sum(ceil(trainer.num_training_batches / accumulation(trainer, each)) for each in range(epoch))


def logs_this_step(trainer: Trainer) -> bool:
    """Return whether loggers get the values of this training step (`log_every_n_steps`)."""
    return trainer._logger_connector.should_update_logs


def is_last_batch(trainer: Trainer) -> bool:
    """Return whether this training batch is the last one of its epoch."""
    return trainer.fit_loop.epoch_loop._num_ready_batches_reached()


def has_logged(trainer: Trainer, name: str) -> bool:
    """Return whether a training step of this epoch has logged a value."""
    return f"training_step.{name}" in trainer._results


def values_to_log(trainer: Trainer) -> tuple[dict[str, Any], int]:
    """Return the values of this training step that loggers get, and their step."""
    return trainer._logger_connector.metrics["log"], trainer.fit_loop.epoch_loop._batches_that_stepped


def validation_follows(trainer: Trainer) -> bool:
    """Return whether Lightning validates after the current training step."""
    loop = trainer.fit_loop
    return any(trainer.num_val_batches) and loop.epoch_loop._should_check_val_fx(loop._data_fetcher)


def repeat_validation(trainer: Trainer) -> None:
    """Let a resumed run start with the validation that Lightning would otherwise consider complete."""
    trainer.fit_loop.epoch_loop.val_loop._restart_stage = RestartStage.RESTARTED_MID_EVALUATION


def begin_next_epoch(trainer: Trainer) -> None:
    """Let a run resumed from the end of an epoch begin the next; with `max_steps`, Lightning would add a batch."""
    loop = trainer.fit_loop
    if loop.restarted_on_epoch_end:
        loop.epoch_progress.increment_completed()
        loop._restarting = loop.epoch_loop.restarting = False  # the setter of `loop` would keep True
        loop.reset_restart_stage()
        loop.epoch_loop.reset_restart_stage()


def may_stop_early(trainer: Trainer) -> bool:
    """Return whether `min_epochs` and `min_steps` are done; before, no callback can end training."""
    return trainer.fit_loop._can_stop_early


def reload_training_data(trainer: Trainer) -> None:
    """Let Lightning load the training data again, when it next needs them."""
    trainer.fit_loop._combined_loader = None


def check_at_validations(trainer: Trainer, later: tuple[str, ...]) -> None:
    """Let `EarlyStopping` check after each validation, unless configured, or its monitor begins with one of `later`."""
    for callback in trainer.early_stopping_callbacks:
        if callback._check_on_train_epoch_end is None and not callback.monitor.startswith(later):
            callback._check_on_train_epoch_end = False


def unstarted_average(callback: WeightAveraging) -> nn.Module | None:
    """Return the module that will hold averages of weights, in training before their first update; otherwise None."""
    average = callback._average_model
    return None if average is None or average.n_averaged else average.module
