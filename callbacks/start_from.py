"""Starts training from the weights of another run."""

from pathlib import Path

from pytorch_lightning import Callback, LightningModule, Trainer

from callbacks.monitors import SHARDED
from datamodules.documents import CorpusError
from lightning_modules.checkpoints import best_checkpoint, read_checkpoint


class StartFrom(Callback):
    """Puts the weights of a run into the model before training; optimizer, schedules and steps start afresh.

    The text of both runs is compared. What callbacks switch (loss weights, the coverage gate) is not taken over: it is
    as the model's own arguments say, until callbacks of this run change it. A run that is resumed goes on with its own
    checkpoint.

    Args:
        run: a run folder, whose best checkpoint is taken, or a checkpoint. The data needs its text, so that ids mean
            the same words; `precis fit --start_from` sees to that.

    Raises:
        CorpusError: in training, if there is no checkpoint, it does not fit the model, or the model is sharded (FSDP).
    """

    def __init__(self, run: Path) -> None:
        self.run = Path(run)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.ckpt_path is not None:
            return
        if type(trainer.strategy).__name__ in SHARDED:
            raise CorpusError("StartFrom: weights are shards already; start with --trainer.strategy ddp")
        state = read_checkpoint(self.run if self.run.is_file() else best_checkpoint(self.run))
        pl_module.on_load_checkpoint(state | {"start": True})
        try:
            pl_module.load_state_dict(state["state_dict"])
        except RuntimeError as error:
            raise CorpusError(f"{self.run}: does not fit the model: {' '.join(str(error).split())}") from None
