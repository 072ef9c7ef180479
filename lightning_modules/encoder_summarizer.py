"""Base class of models with a pretrained encoder, which has a separate learning rate."""

from pathlib import Path
from typing import Any

from datamodules.text.subwords import encoder_path
from lightning_modules.long_input import LongInput, check_truncation
from lightning_modules.networks.passages import Reader, ScratchEncoder
from lightning_modules.schedules import Schedule, training_steps, two_rates
from lightning_modules.summarizer import Summarizer


class EncoderSummarizer(Summarizer):
    """Summarizer over an encoder, pretrained or from scratch, with a learning rate for it and one for the rest.

    A subclass sets `reader` by `make_reader`, and calls `set_rates`.
    """

    reader: Reader
    long_input: LongInput = "windows"

    def setup(self, stage: str) -> None:
        """Set the tokenizer, and check with `long_input: truncate` that no document exceeds the encoder's limit.

        Raises:
            UserError: if the tokenizer does not fit, or `data.max_source` is too large.
        """
        super().setup(stage)
        if self.long_input == "truncate":
            check_truncation(getattr(self.trainer, "datamodule", None), self.reader.max_tokens)

    def make_reader(
        self,
        encoder: str | None,
        hidden_size: int,
        heads: int,
        layers: int,
        dropout: float,
        attention_dropout: float,
        positions: int = 0,
        segments: int = 2,
    ) -> Reader:
        """Return an encoder.

        Args:
            encoder: `minilm`, Hugging Face name or folder of a pretrained encoder; None for one from scratch.
            hidden_size: H of an encoder from scratch.
            heads: number of attention heads of an encoder from scratch.
            layers: number of layers of an encoder from scratch; their inner width is 4 H.
            dropout: dropout of hidden states.
            attention_dropout: dropout of attention weights of a pretrained encoder.
            positions: number of positions to extend a pretrained encoder to; 0 leaves it as it is.
            segments: number of segment types of an encoder from scratch.
        """
        if encoder is not None:
            return Reader.pretrained(encoder_path(encoder), dropout, attention_dropout, positions)
        scratch = ScratchEncoder(
            vocab_size=self.vocab_size,
            size=hidden_size,
            heads=heads,
            layers=layers,
            feed_forward=4 * hidden_size,
            dropout=dropout,
            kinds=segments,
        )
        return Reader(scratch, hidden_size, None, segments)

    def set_rates(
        self,
        encoder: str | None,
        encoder_learning_rate: float,
        learning_rate: float,
        schedule: Schedule,
        warm_up: float,
        weight_decay: float,
        encoder_warm_up: float | None = None,
    ) -> None:
        """Set the arguments of `two_rates`; an encoder from scratch has the rate of other parameters."""
        self.rates = {
            "encoder_rate": learning_rate if encoder is None else encoder_learning_rate,
            "rate": learning_rate,
            "schedule": schedule,
            "warm_up": warm_up,
            "weight_decay": weight_decay,
            "encoder_warm_up": encoder_warm_up,
        }

    def configure_optimizers(self) -> dict[str, Any]:
        """Return AdamW with separate learning rates and warm-ups for the encoder and other parameters."""
        steps = training_steps(self.trainer) if self.rates["schedule"] == "linear" else 1
        return two_rates(self, self.reader, steps=steps, **self.rates)

    def export(self, folder: Path) -> dict[str, str]:
        """Write a pretrained encoder; the rest of the model is the suite's own and has no such form."""
        return self.reader.export(folder, self.tokenizer)
