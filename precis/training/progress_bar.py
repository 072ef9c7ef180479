"""The progress bar of the training commands."""

from pytorch_lightning.callbacks import RichProgressBar


class TrainingProgressBar(RichProgressBar):
    """Lightning's bar, which without a number of epochs (`max_epochs: -1`) shows the epoch alone."""

    def _get_train_description(self, current_epoch: int) -> str:
        if self.trainer.max_epochs == -1:
            return f"Epoch {current_epoch}".ljust(len(self.validation_description))
        return super()._get_train_description(current_epoch)
