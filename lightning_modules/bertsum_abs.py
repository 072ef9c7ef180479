"""BertSumAbs and BertSumExtAbs: Liu and Lapata, EMNLP 2019 (arXiv 1908.08345), section 3.3."""

from pathlib import Path

from torch import Tensor, nn

from datamodules.bertsum_abs import BertSumAbsBatch
from datamodules.documents import UserError
from lightning_modules.checkpoints import best_checkpoint, read_checkpoint
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.encoder_summarizer import EncoderSummarizer
from lightning_modules.networks.encoder_decoder import EncoderDecoder
from lightning_modules.networks.passages import encode_documents
from lightning_modules.networks.transformer import Activation, ensure_nonempty
from lightning_modules.options import DocumentEncoderOptions, EncoderAdamWOptions
from lightning_modules.sequence_to_sequence import SequenceToSequence
from lightning_modules.stored import mismatched_shapes
from lightning_modules.summarizer import Samples

_READER = "network.reader."  # prefix of the weights of BertSum's encoder in its checkpoints


class BertSumAbs(SequenceToSequence, EncoderSummarizer):
    """Pretrained encoder and Transformer decoder from scratch, with separate learning rates and warm-ups.

    Loss terms: as in `SequenceToSequence`. With `encoder_from` training starts from the encoder of a trained `BertSum`,
    as in the paper's BertSumExtAbs.

    Args:
        vocab_size: size of the vocabulary; with a pretrained encoder at least that of its tokenizer.
        encoder: encoder, see `DocumentEncoderOptions`.
        decoder_layers: number of layers of the decoder, which has the width of the encoder.
        decoder_heads: number of attention heads of the decoder.
        decoder_inner_size: inner width of the feed-forward networks of the decoder.
        activation: activation of these networks; PreSumm (the code of the paper) has `gelu_tanh`.
        dropout: dropout of encoder and decoder.
        output_bias: whether the output layer has a bias, as PreSumm's has.
        sentence_mark: token between the sentences of generated summaries, such as PreSumm's `[unused2]`; null if
            summaries have no such token and are split into sentences as plain text.
        label_smoothing: epsilon of the loss; the paper has 0.1.
        encoder_from: run folder of a `BertSum` with the same encoder.
        optimizer: options of AdamW; the paper has the schedule `inverse_root`.
        decoding: decoding options; by default beam size 5, 1 to 128 tokens, length penalty ((5 + n) / 6)^0.95, no
            repeated trigrams.
        val_summaries: number of validation documents summarized at each validation during training; -1 for all.
    """

    batch_type = BertSumAbsBatch

    def __init__(
        self,
        vocab_size: int = 30_522,
        encoder: DocumentEncoderOptions = DocumentEncoderOptions(),
        decoder_layers: int = 6,
        decoder_heads: int = 8,
        decoder_inner_size: int = 2048,
        activation: Activation = "relu",
        dropout: float = 0.1,
        output_bias: bool = False,
        sentence_mark: str | None = None,
        label_smoothing: float = 0.0,
        encoder_from: Path | None = None,
        optimizer: EncoderAdamWOptions = EncoderAdamWOptions(encoder_warmup_steps=0.2),  # 0.2 of all steps
        decoding: DecodingOptions | None = DecodingOptions(
            beam_size=5, min_length=1, max_length=128, length_penalty="gnmt", alpha=0.95, no_repeat_ngram=3
        ),
        val_summaries: int = 256,
    ) -> None:
        super().__init__(vocab_size, decoding, val_summaries)
        self.set_label_smoothing(label_smoothing)
        self.sentence_mark = sentence_mark
        self.interval_segments = encoder.interval_segments  # whether segment ids alternate between sentences
        self.encoder_from = encoder_from
        self.reader = self.make_reader(encoder, dropout, optimizer)
        self.decoder = EncoderDecoder(  # without encoder layers, because `reader` is the encoder
            vocab_size=vocab_size, size=self.reader.size, heads=decoder_heads, encoder_layers=0,
            decoder_layers=decoder_layers, feed_forward=decoder_inner_size, dropout=dropout, activation=activation,
            output_bias=output_bias,
        )  # fmt: skip
        self.decoder.encoder_norm = nn.Identity()  # unused without encoder layers; `Identity` has no weights

    def setup(self, stage: str) -> None:
        """Set the tokenizer and, when a new run is trained, load the encoder of the run `encoder_from`."""
        super().setup(stage)
        if stage != "fit" or self.encoder_from is None or self.trainer.ckpt_path:  # a checkpoint is resumed
            return
        path = best_checkpoint(Path(self.encoder_from))
        state = read_checkpoint(path)["state_dict"]  # of the whole BertSum
        encoder_state = {name.removeprefix(_READER): value for name, value in state.items() if name.startswith(_READER)}
        for name in mismatched_shapes(encoder_state, self.reader.state_dict()):
            raise UserError(f"{path}: another encoder, at {name}; give a run of BertSum with this one")
        self.reader.load_state_dict(encoder_state)

    def encode(self, batch: BertSumAbsBatch) -> tuple[Tensor, Tensor]:
        """Return document states [B, S, H] and a mask of tokens [B, S], True at the first position of empty ones."""
        segments = batch.owner.clamp_min(0) % 2 if self.interval_segments else None  # owner: sentence of each token
        states = encode_documents(self.reader, batch.tokens, batch.lengths, segments)
        return states, ensure_nonempty(batch.owner >= 0)

    def texts(self, batch: BertSumAbsBatch, samples: Samples) -> list[list[str]]:
        """Return the text of each sample, without the marks between sentences."""
        texts = super().texts(batch, samples)
        if self.sentence_mark is None:
            return texts
        return [[" ".join(self._sentences(text)) for text in document_texts] for document_texts in texts]

    def _sentences(self, text: str) -> list[str]:
        if self.sentence_mark is None:
            return super()._sentences(text)
        sentences = (" ".join(sentence.split()) for sentence in text.split(self.sentence_mark))
        return [sentence for sentence in sentences if sentence]

    def source_ids(self, batch: BertSumAbsBatch) -> Tensor:
        """Return the token ids of the documents, [B, S]."""
        return batch.tokens
