"""BertSumAbs and BertSumExtAbs: Liu and Lapata, EMNLP 2019 (arXiv 1908.08345), section 3.3."""

from pathlib import Path

from torch import Tensor, nn

from datamodules.bertsum_abs import BertSumAbsBatch
from datamodules.documents import CorpusError
from lightning_modules.checkpoints import best_checkpoint, read_checkpoint
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.encoder_summarizer import EncoderSummarizer
from lightning_modules.networks.encoder_decoder import EncoderDecoder
from lightning_modules.networks.passages import Reach, encode_documents
from lightning_modules.networks.transformer import ensure_nonempty
from lightning_modules.schedules import Schedule
from lightning_modules.sequence_to_sequence import SequenceToSequence

_READER = "network.reader."  # where BertSum keeps its encoder


class BertSumAbs(SequenceToSequence, EncoderSummarizer):
    """A pretrained encoder and a Transformer decoder from scratch, each with a learning rate and a warm-up of its own.

    Loss term: `nll`, the mean over each summary of -log P(y_t). With `encoder_from` the encoder is that of a trained
    `BertSum`: the paper's BertSumExtAbs.

    Args:
        vocab_size: tokens of both sides; with `encoder` at least its tokenizer's.
        encoder: `minilm` (the optional package), Hugging Face name or folder of a pretrained encoder; null for one from
            scratch, which the next three arguments describe.
        hidden_size: H of an encoder from scratch.
        heads: its attention heads.
        layers: its layers; the width inside them is 4 H.
        reach: how a pretrained encoder reads longer documents than it has positions: see `BertSum`.
        positions: how many there are with `extend`.
        interval_segments: whether segments alternate from sentence to sentence.
        decoder_layers: of the decoder, which is as wide as the encoder.
        decoder_heads: its attention heads.
        decoder_size: width inside its feed-forward networks.
        dropout: of both.
        attention_dropout: of a pretrained encoder's attention weights.
        encoder_from: run folder of a `BertSum` with the same encoder.
        encoder_learning_rate: peak rate of the encoder.
        encoder_warm_up: its warm-up, in steps or as a share of all steps if below 1.
        learning_rate: peak rate of the decoder.
        warm_up: its warm-up.
        schedule: `linear`, `inverse_root` (the paper's) or `constant`.
        weight_decay: of AdamW.
        decoding: how summaries are decoded; beam 5, 1 to 128 tokens, length penalty ((5 + n) / 6)^0.95 and no trigram
            twice if not given.
        val_summaries: validation documents that are summarized at each validation in training; -1 for all.
    """

    batch_type = BertSumAbsBatch

    def __init__(
        self,
        vocab_size: int = 30_522,
        encoder: str | None = "minilm",
        hidden_size: int = 256,
        heads: int = 8,
        layers: int = 6,
        reach: Reach = "windows",
        positions: int = 1024,
        interval_segments: bool = True,
        decoder_layers: int = 6,
        decoder_heads: int = 8,
        decoder_size: int = 2048,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        encoder_from: Path | None = None,
        encoder_learning_rate: float = 5e-5,
        encoder_warm_up: float = 0.2,
        learning_rate: float = 5e-4,
        warm_up: float = 0.1,
        schedule: Schedule = "linear",
        weight_decay: float = 0.01,
        decoding: DecodingOptions | None = None,
        val_summaries: int = 256,
    ) -> None:
        usual = DecodingOptions(5, 1, 128, length_penalty="gnmt", alpha=0.95, no_repeat_ngram=3)
        super().__init__(vocab_size, decoding or usual, val_summaries)
        rates = (encoder_learning_rate, learning_rate, schedule, warm_up, weight_decay, encoder_warm_up)
        self.set_rates(encoder, *rates)
        self.interval_segments, self.encoder_from = interval_segments, encoder_from
        extended = positions if reach == "extend" else 0
        self.reader = self.make_reader(encoder, hidden_size, heads, layers, dropout, attention_dropout, extended)
        size = self.reader.size
        self.decoder = EncoderDecoder(vocab_size, size, decoder_heads, 0, decoder_layers, decoder_size, dropout)
        self.decoder.encoder_norm = nn.Identity()  # it has no encoder

    def setup(self, stage: str) -> None:
        """Takes the text, and before training the encoder to start from; a run that is resumed has its own.

        Raises:
            CorpusError: if it is not there, or is another encoder.
        """
        super().setup(stage)
        if stage != "fit" or self.encoder_from is None or self.trainer.ckpt_path:
            return
        path = best_checkpoint(Path(str(self.encoder_from)))
        state = read_checkpoint(path)["state_dict"]
        encoder_state = {name.removeprefix(_READER): value for name, value in state.items() if name.startswith(_READER)}
        expected = self.reader.state_dict()
        names = expected.keys() | encoder_state.keys()
        absent = expected.keys() ^ encoder_state.keys()
        wrong = [name for name in names if name in absent or expected[name].shape != encoder_state[name].shape]
        if wrong:
            raise CorpusError(f"{path}: another encoder, at {min(wrong)}; give a run of BertSum with this one")
        self.reader.load_state_dict(encoder_state)

    # Documents ---------------------------------------------------------------------------------------------------

    def encode(self, batch: BertSumAbsBatch) -> tuple[Tensor, Tensor]:
        """States of documents [B, S, H], and a mask that is True at their tokens [B, S], or at a first symbol."""
        segments = batch.owner.clamp_min(0) % 2 if self.interval_segments else None
        return encode_documents(self.reader, batch.tokens, batch.lengths, segments), ensure_nonempty(batch.owner >= 0)

    def source_ids(self, batch: BertSumAbsBatch) -> Tensor:
        """What the encoder reads, [B, S]."""
        return batch.tokens
