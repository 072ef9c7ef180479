"""Base class of models with a pretrained encoder, which has a separate learning rate."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from datamodules.text.subwords import encoder_path
from lightning_modules import options
from lightning_modules.networks.passages import Reader, ScratchEncoder
from lightning_modules.options import DocumentEncoderOptions, EncoderAdamWOptions, EncoderOptions, check_truncation
from lightning_modules.schedules import steps_needed, two_rates
from lightning_modules.summarizer import Summarizer


class EncoderSummarizer(Summarizer):
    """Summarizer over an encoder, from scratch or pretrained; a pretrained one has a learning rate of its own.

    A subclass sets `reader`, the encoder, by `make_reader`.
    """

    reader: Reader
    optimizer: EncoderAdamWOptions
    long_input: options.LongInput = "windows"

    def setup(self, stage: str) -> None:
        """Set the tokenizer; with `long_input: truncate`, check that the data are truncated to the encoder's limit."""
        super().setup(stage)
        if self.long_input == "truncate":
            check_truncation(getattr(self.trainer, "datamodule", None), self.reader.max_tokens)

    def make_reader(
        self, encoder: EncoderOptions, dropout: float, optimizer: EncoderAdamWOptions, segments: int = 2
    ) -> Reader:
        """Return an encoder, pretrained or from scratch (`segments` segment types); set `optimizer` and `long_input`.

        An encoder from scratch has the learning rate of the other parameters.
        """
        positions = 0  # minimum number of positions; 0 leaves those of the pretrained encoder
        if isinstance(encoder, DocumentEncoderOptions):  # other options have no `long_input`, which stays as it is
            self.long_input = encoder.long_input
            positions = encoder.positions if encoder.long_input == "extend" else 0  # copies of the last
        self.optimizer = optimizer
        if encoder.checkpoint is not None:
            return Reader.pretrained(encoder_path(encoder.checkpoint), dropout, encoder.attention_dropout, positions)
        self.optimizer = replace(optimizer, encoder_lr=optimizer.lr)
        sizes = (encoder.hidden_size, encoder.heads, encoder.layers)
        return Reader.from_scratch(self.vocab_size, *sizes, dropout, segments)

    def configure_optimizers(self) -> dict[str, Any]:
        """Return AdamW with separate learning rates and warm-ups for the encoder and other parameters."""
        return two_rates(self, self.reader, self.optimizer, steps_needed(self.trainer, self.optimizer))

    def export(self, folder: Path) -> dict[str, str]:
        """Write a pretrained encoder, see `Summarizer.export`; `transformers` has no class for the whole model."""
        if isinstance(self.reader.model, ScratchEncoder):
            return {}
        from lightning_modules.networks.pretrained import save_pretrained  # takes seconds to load

        save_pretrained(folder / "encoder", self.reader.model, self.tokenizer)
        return {"encoder.checkpoint": "encoder"}
