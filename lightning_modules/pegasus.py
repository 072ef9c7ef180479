"""PEGASUS: Zhang, Zhao, Saleh and Liu, ICML 2020 (arXiv 1912.08777), pre-training by gap sentences and fine-tuning."""

import os
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM

from datamodules.documents import CorpusError
from datamodules.pegasus import PegasusBatch
from datamodules.text.masked_text import MaskedText
from datamodules.text.sentences import split_sentences
from lightning_modules.decoding.beam_search import Hypotheses, beam_search
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.decoding.sampling import sample
from lightning_modules.networks.encoder_decoder import EncoderDecoder
from lightning_modules.networks.pretrained import PretrainedEncoderDecoder
from lightning_modules.networks.transformer import Activation
from lightning_modules.summarizer import Samples, Summarizer, Summary, evaluating


class Pegasus(Summarizer):
    """An encoder-decoder Transformer, for gap sentences (`GapSentenceData`) and then for summaries (`PegasusData`).

    Loss term: `nll`, the mean over each summary of -log P(y_t). The paper's BASE is size 768, 12 heads, 12 layers, 3072
    inside; LARGE 1024, 16, 16, 4096.

    Args:
        vocab_size: V; of a pretrained model at most what it has.
        checkpoint: name or folder of a pretrained Hugging Face model; its size then takes the place of the next
            arguments.
        hidden_size: D of a model from scratch.
        heads: of all attention.
        layers: encoder layers.
        decoder_layers: decoder layers; as many as the encoder has if not given.
        inner_size: of the feed-forward networks.
        dropout: of a model from scratch.
        activation: of its feed-forward networks.
        start_from: run folder or checkpoint of the pre-training whose weights training starts from; `{seed}` in it
            stands for the seed of this run. `data.text` is to be that run's text folder.
        learning_rate: of Adafactor, where the command line names no other optimizer.
        decoding: how summaries are decoded; beam 4, 1 to 128 tokens, length penalty ((5 + n) / 6)^0.8 if not given.
        val_summaries: validation documents that are summarized at each validation in training; -1 for all.
    """

    def __init__(
        self,
        vocab_size: int = 16_000,
        checkpoint: str | None = None,
        hidden_size: int = 256,
        heads: int = 4,
        layers: int = 3,
        decoder_layers: int | None = None,
        inner_size: int = 1024,
        dropout: float = 0.1,
        activation: Activation = "relu",
        start_from: Path | None = None,
        learning_rate: float = 0.01,
        decoding: DecodingOptions | None = None,
        val_summaries: int = 256,
    ) -> None:
        penalty = {"length_penalty": "gnmt", "alpha": 0.8}
        super().__init__(
            vocab_size, decoding or DecodingOptions(min_length=1, max_length=128, **penalty), val_summaries
        )
        self.learning_rate, self.start_from = learning_rate, start_from
        if checkpoint is not None:
            self.network = PretrainedEncoderDecoder(AutoModelForSeq2SeqLM.from_pretrained(checkpoint).train())
        else:
            self.network = EncoderDecoder(
                vocab_size, hidden_size, heads, layers, layers if decoder_layers is None else decoder_layers,
                inner_size, dropout, activation,
            )  # fmt: skip

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adafactor, as in the paper."""
        return torch.optim.Adafactor(self.parameters(), lr=self.learning_rate)

    # Text and weights --------------------------------------------------------------------------------------------

    def use_text(self, text: MaskedText) -> None:
        """Takes a tokenizer.

        Raises:
            CorpusError: if it does not fit `vocab_size` or the pretrained model.
        """
        super().use_text(text)
        if isinstance(self.network, PretrainedEncoderDecoder):
            config = self.network.model.config
            if len(text) > config.vocab_size:
                raise CorpusError(f"the text has {len(text)} tokens, the pretrained model {config.vocab_size}")
            if (text.pad, text.stop) != (config.pad_token_id, config.eos_token_id):
                raise CorpusError(
                    f"<pad> and </s> are {(text.pad, text.stop)} in the text, and others in the pretrained model; "
                    "leave data.text out, or give one of that model"
                )

    @property
    def start(self) -> int:
        """The token that decoding starts with."""
        pretrained = isinstance(self.network, PretrainedEncoderDecoder)
        return self.network.start if pretrained else self.text.start

    def setup(self, stage: str) -> None:
        """Takes the text, and before training the weights to start from; a run that is resumed has its own.

        Raises:
            CorpusError: if they are not there, do not fit, or belong to another text.
        """
        super().setup(stage)
        if stage != "fit" or self.start_from is None or self.trainer.ckpt_path:
            return
        path = Path(str(self.start_from).replace("{seed}", os.environ.get("PL_GLOBAL_SEED", "0")))
        folder = path / "checkpoints"
        if path.is_dir():
            path = next((p for p in (folder / "best.ckpt", folder / "last.ckpt") if p.is_file()), folder / "best.ckpt")
        if not path.is_file():
            raise CorpusError(f"{path}: not there; model.start_from is the folder of a run, or a checkpoint")
        content = torch.load(path, map_location="cpu", weights_only=True)
        if content.get("text") != self.text.state():
            raise CorpusError(f"{path}: its text is another one; give data.text the folder `text` of that run")
        state, own = content["state_dict"], self.state_dict()
        names = sorted(own.keys() | state.keys())
        if wrong := [n for n in names if n not in own or n not in state or own[n].shape != state[n].shape]:
            raise CorpusError(f"{path}: its weights do not fit this model's size at {', '.join(wrong[:3])}")
        self.load_state_dict(state)

    # Training ----------------------------------------------------------------------------------------------------

    def shifted(self, target: Tensor) -> Tensor:
        """Decoder inputs of targets: the start symbol in front, [..., T]."""
        return torch.cat([torch.full_like(target[..., :1], self.start), target[..., :-1]], -1)

    def _log_likelihood(self, states: Tensor, mask: Tensor, target: Tensor, rows: Tensor) -> Tensor:
        """log P(y_t) of targets [B, T], 0 at padding; `rows` are the flat positions of real tokens, [N]."""
        network, words = self.network, len(self.text)
        log_probs = network.log_prob(states, mask, self.shifted(target), target, rows, words)
        flat = log_probs.new_zeros(target.numel()).index_copy(0, rows, log_probs)
        return flat.view(target.shape)

    def loss_terms(self, batch: PegasusBatch) -> dict[str, Tensor]:
        """`nll`: the mean over the target, then over the documents."""
        states = self.network.encode(batch.source, batch.source_mask)
        log_probs = self._log_likelihood(states, batch.source_mask, batch.target, batch.target_rows)
        return {"nll": -(log_probs.sum(1) / batch.target_lengths).mean()}

    # Generation --------------------------------------------------------------------------------------------------

    def generate(self, batch: PegasusBatch, options: DecodingOptions) -> Hypotheses:
        """Beam search or sampling."""
        text = self.text
        with evaluating(self):
            states = self.network.encode(batch.source, batch.source_mask)
            state, memory = self.network.begin(states, batch.source_mask)
            first = torch.full_like(batch.source[:, 0], self.start)
            forbidden = tuple({text.pad, text.start, *text.opening} - {text.stop})
            arguments = (self.network.stepper(len(text)), state, memory, first, text.stop, options)
            if options.sample:
                return sample(*arguments, forbidden, text.pad)
            return beam_search(*arguments, forbidden, text.pad)

    def sample(self, batch: PegasusBatch, options: DecodingOptions) -> Samples:
        """Generated ids, [B, K, T], without gradient."""
        hypotheses = self.generate(batch, options)
        return Samples(hypotheses.tokens, hypotheses.lengths)

    def log_probs(self, batch: PegasusBatch, samples: Samples) -> Tensor:
        """log P of given ids in one teacher-forced pass, [B, K, T]; 0 behind `lengths`."""
        B, K, T = samples.tokens.shape
        states = self.network.encode(batch.source, batch.source_mask).repeat_interleave(K, 0)    # [B K, S, D]
        mask = batch.source_mask.repeat_interleave(K, 0)
        real = torch.arange(T, device=mask.device) < samples.lengths.unsqueeze(-1)               # [B, K, T]
        rows = real.flatten().nonzero().squeeze(1)
        return self._log_likelihood(states, mask, samples.tokens.flatten(0, 1), rows).view(B, K, T)

    def texts(self, batch: PegasusBatch, samples: Samples) -> list[list[str]]:
        """Text of each sample, special symbols and tokens behind `lengths` left out."""
        rows = zip(samples.tokens.tolist(), samples.lengths.tolist())
        return [[self.text.decode(ids[:length]) for ids, length in zip(*row)] for row in rows]

    def source_ids(self, batch: PegasusBatch) -> Tensor:
        """What the encoder reads, [B, S]."""
        return batch.source

    def summarize(self, batch: PegasusBatch) -> list[Summary]:
        """The best hypothesis of each document as sentences."""
        found = self.generate(batch, self.decoding)
        texts = self.texts(batch, Samples(found.tokens[:, :1], found.lengths[:, :1]))
        return [
            Summary(name, split_sentences(text), references)
            for name, (text,), references in zip(batch.ids, texts, batch.references)
        ]
