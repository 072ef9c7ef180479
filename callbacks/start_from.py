"""Callbacks that set weights: those of another run at the start, and averages before they begin."""

from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import WeightAveraging

from datamodules.documents import UserError
from lightning_modules.checkpoints import best_checkpoint, read_checkpoint
from lightning_modules.lightning_internals import unstarted_average


class StartFrom(Callback):
    """Loads the weights of a run into the model before training; optimizer, schedules and steps start from zero.

    The tokenizers of both runs must be equal. Loss weights and coverage gate, which callbacks control, are not loaded:
    they have the values of the model's arguments until callbacks change them. A resumed run uses its own checkpoint.

    Args:
        run: run folder, whose best checkpoint is used, or a checkpoint. The data must use its tokenizer, which
            `precis fit --start_from` ensures.

    Raises:
        UserError: in training, if there is no checkpoint, or it does not fit the model.
    """

    def __init__(self, run: Path) -> None:
        self.run = Path(run)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.ckpt_path is not None:  # a resumed run
            return
        state = read_checkpoint(self.run if self.run.is_file() else best_checkpoint(self.run))
        state["start"] = True  # so that `on_load_checkpoint` of the model ignores the state of callbacks
        pl_module.on_load_checkpoint(state)  # it may add weights that `state` lacks, such as adapters
        try:
            trainer.strategy.load_model_state_dict(state)
        except RuntimeError as error:
            raise UserError(f"{self.run}: does not fit the model: {' '.join(str(error).split())}") from None


class AverageStart(Callback):
    """Lets `WeightAveraging`, a later callback, hold present weights until its first update, not the initial ones."""

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:  # *_: a checkpoint
        for callback in trainer.callbacks:
            if isinstance(callback, WeightAveraging) and (average := unstarted_average(callback)) is not None:
                average.load_state_dict(pl_module.state_dict())

    on_save_checkpoint = on_train_end = on_validation_start
