"""What the discourse parser and the EDU segmenter share: a token encoder, its optimizer, and the weights to keep."""

from pathlib import Path
from typing import Any

from pytorch_lightning import LightningModule
from torch import Tensor, nn
from torchmetrics import Metric

from datamodules.documents import UserError
from datamodules.text.subwords import Subwords
from lightning_modules.discourse_parser.encoders import pretrained_encoder
from lightning_modules.discourse_parser.shipped import SMALL
from lightning_modules.networks.text_encoder import SmallEncoder, TextEncoder
from lightning_modules.schedules import adamw_with_encoder, training_steps
from lightning_modules.stored import load_weights, save_weights


class EncoderModule(LightningModule):
    """Base class of models over a token encoder, `small` or pretrained.

    Attributes:
        parts: prefixes of the weights that are kept besides the trained ones of the encoder.
        settings: arguments that are stored with the weights.
        rates: learning rate, learning rate of a pretrained encoder, and weight decay.
        subwords: tokenizer of a pretrained encoder.
    """

    parts: tuple[str, ...]
    settings: dict[str, Any]
    rates: tuple[float, float, float]

    def __init__(self, settings: dict[str, Any], small_encoder: Path | None) -> None:
        super().__init__()
        self.settings, self.small_encoder = settings, small_encoder
        name, window = settings["encoder"], settings["window"]
        self.subwords = None if name == SMALL else Subwords(name)
        if self.subwords is None:
            self.encoder: nn.Module = SmallEncoder(window=window, dropout=settings["dropout"])
        else:
            self.encoder = pretrained_encoder(
                name=name,
                subwords=self.subwords,
                layers=settings["layers"],
                window=window,
                frozen=settings["frozen"],
                frozen_layers=settings["frozen_layers"],
                dropout=settings["encoder_dropout"],
                lora_rank=settings["lora_rank"],
            )
        self.vector_cache: dict[str, Tensor] = {}  # vectors of a frozen encoder, by the digest of a text

    def setup(self, stage: str) -> None:
        """Load the weights of the small encoder before training, unless a checkpoint is resumed.

        Raises:
            UserError: if the encoder is another one, or the folder has no such weights.
        """
        if stage != "fit" or self.small_encoder is None or self.is_resumed:
            return
        if not isinstance(self.encoder, SmallEncoder):
            raise UserError(f"model.small_encoder {self.small_encoder}: is for `encoder: small` alone; leave it out")
        load_weights(Path(self.small_encoder), self.encoder, self.encoder.state_dict())

    @property
    def is_resumed(self) -> bool:
        """Whether the trainer resumes a checkpoint, whose weights replace initial ones."""
        return self._trainer is not None and self.trainer.ckpt_path is not None

    @property
    def has_fixed_encoder(self) -> bool:
        """Whether the encoder is frozen, so that its vectors can be cached."""
        return isinstance(self.encoder, TextEncoder) and self.encoder.frozen

    def log_scores(self, stage: str, metric: Metric, in_progress_bar: str) -> None:
        """Log the scores of an epoch, and reset the metric."""
        for name, value in metric.compute().items():
            self.log(f"{stage}/{name}", value, prog_bar=name == in_progress_bar)
        metric.reset()

    def configure_optimizers(self) -> dict[str, Any]:
        pretrained = None if self.subwords is None else self.encoder
        return adamw_with_encoder(self, pretrained, *self.rates, training_steps(self.trainer))

    def state_to_keep(self) -> dict[str, Tensor]:
        """Return the trained weights: without the frozen ones of a pretrained encoder, which can be loaded again."""
        trained = {name for name, parameter in self.encoder.named_parameters("encoder") if parameter.requires_grad}
        return {n: value for n, value in self.state_dict().items() if n in trained or n.startswith(self.parts)}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["state_dict"] = self.state_to_keep()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["state_dict"] = {**self.state_dict(), **checkpoint["state_dict"]}

    def save(self, folder: Path, bits: int = 16) -> None:
        """Write config.json and model.safetensors, matrices in 16 or 8 bits; see `save_weights`."""
        save_weights(folder, self.settings, self.state_to_keep(), bits)
