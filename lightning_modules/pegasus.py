"""PEGASUS: Zhang, Zhao, Saleh and Liu, ICML 2020 (arXiv 1912.08777), pre-training by gap sentences and fine-tuning."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM

from datamodules.documents import UserError
from datamodules.pegasus import PegasusBatch
from datamodules.text.masking_tokenizer import MaskingTokenizer
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.long_input import check_truncation
from lightning_modules.networks.encoder_decoder import EncoderDecoder
from lightning_modules.networks.pretrained import PretrainedEncoderDecoder, save_pretrained
from lightning_modules.networks.transformer import Activation
from lightning_modules.optimizer_options import OptimizerOptions
from lightning_modules.sequence_to_sequence import SequenceToSequence


@dataclass(frozen=True)
class EncoderDecoderOptions:
    """Encoder of PEGASUS; sizes also are those of the decoder."""

    checkpoint: str | None = None
    """Name or folder of a pretrained Hugging Face model, whose sizes replace those below. The data needs the same
    one."""
    hidden_size: int = 256
    """Width D."""
    heads: int = 4
    """Number of attention heads of all layers."""
    layers: int = 3
    """Number of encoder layers."""
    inner_size: int = 1024
    """Width inside the feed-forward networks."""


class Pegasus(SequenceToSequence):
    """Encoder-decoder Transformer, pre-trained on gap sentences (`GapSentenceData`), then on summaries (`PegasusData`).

    Loss terms: those of `SequenceToSequence`. In the paper, BASE has hidden size 768, 12 heads, 12 layers and inner
    size 3072; LARGE has 1024, 16, 16 and 4096.

    Args:
        vocab_size: V; at most that of a pretrained model.
        encoder: encoder and sizes, see `EncoderDecoderOptions`.
        decoder_layers: number of decoder layers; by default that of the encoder.
        dropout: dropout of a model from scratch.
        activation: activation of the feed-forward networks of a model from scratch.
        label_smoothing: epsilon of the loss; the paper's fine-tuning has 0.1.
        optimizer: learning rate of Adafactor.
        decoding: decoding options; by default beam size 4, 1 to 128 tokens, length penalty ((5 + n) / 6)^0.8.
        val_summaries: number of validation documents summarized at each validation during training; -1 for all.
    """

    batch_type = PegasusBatch

    def __init__(
        self,
        vocab_size: int = 16_000,
        encoder: EncoderDecoderOptions = EncoderDecoderOptions(),
        decoder_layers: int | None = None,
        dropout: float = 0.1,
        activation: Activation = "relu",
        label_smoothing: float = 0.0,
        optimizer: OptimizerOptions = OptimizerOptions(lr=0.01),
        decoding: DecodingOptions | None = None,
        val_summaries: int = 256,
    ) -> None:
        penalty = {"length_penalty": "gnmt", "alpha": 0.8}
        decoding = decoding or DecodingOptions(min_length=1, max_length=128, **penalty)
        super().__init__(vocab_size, decoding, val_summaries)
        self.set_label_smoothing(label_smoothing)
        self.optimizer = optimizer
        if encoder.checkpoint is not None:
            self.network = PretrainedEncoderDecoder(AutoModelForSeq2SeqLM.from_pretrained(encoder.checkpoint).train())
            return
        self.network = EncoderDecoder(
            vocab_size=vocab_size,
            size=encoder.hidden_size,
            heads=encoder.heads,
            encoder_layers=encoder.layers,
            decoder_layers=encoder.layers if decoder_layers is None else decoder_layers,
            feed_forward=encoder.inner_size,
            dropout=dropout,
            activation=activation,
        )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return Adafactor, the optimizer of the paper."""
        return torch.optim.Adafactor(self.parameters(), lr=self.optimizer.lr)

    def setup(self, stage: str) -> None:
        """Set the tokenizer, and check that no document has more tokens than a pretrained model has positions.

        Raises:
            UserError: if the tokenizer does not fit, or `data.max_source` is too large.
        """
        super().setup(stage)
        if isinstance(self.network, PretrainedEncoderDecoder):
            check_truncation(getattr(self.trainer, "datamodule", None), self.network.max_positions)

    # Tokenizer ---------------------------------------------------------------------------------------------------

    def set_tokenizer(self, tokenizer: MaskingTokenizer) -> None:
        """Set the tokenizer.

        Raises:
            UserError: if it does not fit `vocab_size` or the pretrained model.
        """
        super().set_tokenizer(tokenizer)
        if isinstance(self.network, PretrainedEncoderDecoder):
            config = self.network.model.config
            if len(tokenizer) > config.vocab_size:
                problem = f"the tokenizer has {len(tokenizer)} tokens, the pretrained model {config.vocab_size}"
                raise UserError(f"{problem}; leave data.tokenizer_dir out")
            if (tokenizer.pad, tokenizer.stop) != (config.pad_token_id, config.eos_token_id):
                raise UserError(
                    f"<pad> and </s> are {(tokenizer.pad, tokenizer.stop)} in the tokenizer, but differ in the "
                    "pretrained model; leave data.tokenizer_dir out, or give the tokenizer of that model"
                )

    def export(self, folder: Path) -> dict[str, str]:
        """Write a pretrained model and its tokenizer as Hugging Face does; one from scratch has no such form."""
        if not isinstance(self.network, PretrainedEncoderDecoder):
            return {}
        save_pretrained(folder, self.network.model, self.tokenizer)
        return {"encoder.checkpoint": "."}

    @property
    def start(self) -> int:
        """The token that decoding starts with."""
        pretrained = isinstance(self.network, PretrainedEncoderDecoder)
        return self.network.start if pretrained else self.tokenizer.start

    # Documents ---------------------------------------------------------------------------------------------------

    @property
    def decoder(self) -> EncoderDecoder | PretrainedEncoderDecoder:
        """The network, which writes as well."""
        return self.network

    def forbidden(self, options: DecodingOptions) -> tuple[int, ...]:
        """Return the tokens that are never generated, including those that begin every text."""
        return tuple({self.tokenizer.pad, self.tokenizer.start, *self.tokenizer.opening} - {self.tokenizer.stop})

    def encode(self, batch: PegasusBatch) -> tuple[Tensor, Tensor]:
        """Return states of documents [B, S, D], and their mask, True at tokens, [B, S]."""
        return self.network.encode(batch.source, batch.source_mask), batch.source_mask
