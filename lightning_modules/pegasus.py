"""PEGASUS: Zhang, Zhao, Saleh and Liu, ICML 2020 (arXiv 1912.08777), pre-training by gap sentences and fine-tuning."""

from dataclasses import dataclass

import torch

from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.networks.encoder_decoder import EncoderDecoder
from lightning_modules.networks.transformer import Activation
from lightning_modules.options import OptimizerOptions
from lightning_modules.pretrained_summarizer import EncoderDecoderSummarizer, load_encoder_decoder


@dataclass(frozen=True)
class EncoderDecoderOptions:
    """Encoder of PEGASUS; the decoder has the same sizes."""

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


class Pegasus(EncoderDecoderSummarizer):
    """Encoder-decoder Transformer, pre-trained on gap sentences (`GapSentenceData`), then on summaries (`PegasusData`).

    Loss terms: those of `SequenceToSequence`. The paper's BASE model has hidden size 768, 12 heads, 12 layers and inner
    size 3072; LARGE has 1024, 16, 16 and 4096.

    Args:
        vocab_size: size of the vocabulary; at most that of a pretrained model.
        encoder: encoder and sizes, see `EncoderDecoderOptions`.
        decoder_layers: number of decoder layers; by default as many as the encoder has.
        dropout: dropout of a model from scratch.
        activation: activation of the feed-forward networks of a model from scratch.
        label_smoothing: epsilon of the loss; the paper's fine-tuning has 0.1.
        optimizer: learning rate of Adafactor.
        decoding: decoding options; by default beam size 4, 1 to 128 tokens, length penalty ((5 + n) / 6)^0.8.
        val_summaries: number of validation documents summarized at each validation during training; -1 for all.
    """

    def __init__(
        self,
        vocab_size: int = 16_000,
        encoder: EncoderDecoderOptions = EncoderDecoderOptions(),
        decoder_layers: int | None = None,
        dropout: float = 0.1,
        activation: Activation = "relu",
        label_smoothing: float = 0.0,
        optimizer: OptimizerOptions = OptimizerOptions(lr=0.01),
        # the paper's beam search; its maximum length differs by data set
        decoding: DecodingOptions | None = DecodingOptions(
            min_length=1, max_length=128, length_penalty="gnmt", alpha=0.8
        ),
        val_summaries: int = 256,
    ) -> None:
        super().__init__(vocab_size, decoding, val_summaries)
        self.set_label_smoothing(label_smoothing)
        self.optimizer = optimizer
        if encoder.checkpoint is not None:  # sizes are then those of the checkpoint
            self.network = load_encoder_decoder(encoder.checkpoint)
            return
        self.network = EncoderDecoder(
            vocab_size=vocab_size, size=encoder.hidden_size, heads=encoder.heads, encoder_layers=encoder.layers,
            decoder_layers=encoder.layers if decoder_layers is None else decoder_layers,
            feed_forward=encoder.inner_size, dropout=dropout, activation=activation,
        )  # fmt: skip

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return Adafactor, the optimizer of the paper."""
        return torch.optim.Adafactor(self.parameters(), lr=self.optimizer.lr)
