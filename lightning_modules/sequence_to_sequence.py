"""What models share that encode a document, then write with a Transformer decoder over the states."""

from abc import abstractmethod
from typing import Protocol

import torch
from torch import Tensor

from datamodules.batch import Batch
from datamodules.text.sentences import split_sentences
from lightning_modules.decoding.beam_search import Hypotheses, beam_search
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.decoding.sampling import rescore, sample
from lightning_modules.networks.encoder_decoder import EncoderDecoder
from lightning_modules.networks.pretrained import PretrainedEncoderDecoder
from lightning_modules.summarizer import Samples, Summarizer, Summary, evaluating


class Targets(Protocol):
    """What is read of a batch here, beside its documents."""

    ids: list[str]
    references: list[list[str]]
    target: Tensor  # ids, end symbol included, [B, T]
    target_lengths: Tensor  # [B]
    target_rows: Tensor  # flat positions of real tokens in `target`, [N]


class SequenceToSequence(Summarizer):
    """Likelihood, generation and rescoring, given `encode` and a `decoder`.

    Loss term: `nll`, the mean over each summary of -log P(y_t), then over the documents.
    """

    decoder: EncoderDecoder | PretrainedEncoderDecoder

    @abstractmethod
    def encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """States of the documents [B, S, H], and a mask that is True at their tokens [B, S]."""

    @abstractmethod
    def source_ids(self, batch: Batch) -> Tensor:
        """What the encoder reads, [B, S]."""

    @property
    def start(self) -> int:
        """The token that decoding starts with."""
        return self.text.start

    @property
    def never(self) -> set[int]:
        """Tokens that are never written."""
        return {self.text.pad, self.text.start}

    # Training ----------------------------------------------------------------------------------------------------

    def shifted(self, target: Tensor) -> Tensor:
        """Decoder inputs of targets: the start symbol in front, [..., T]."""
        return torch.cat([torch.full_like(target[..., :1], self.start), target[..., :-1]], -1)

    def _log_likelihood(self, states: Tensor, mask: Tensor, target: Tensor, rows: Tensor) -> Tensor:
        """log P(y_t) of targets [B, T], 0 at padding; `rows` are the flat positions of real tokens, [N]."""
        log_probs = self.decoder.log_prob(states, mask, self.shifted(target), target, rows, len(self.text))
        return log_probs.new_zeros(target.numel()).index_copy(0, rows, log_probs).view(target.shape)

    def loss_terms(self, batch: Targets) -> dict[str, Tensor]:
        """`nll`: the mean over the target, then over the documents."""
        log_probs = self._log_likelihood(*self.encode(batch), batch.target, batch.target_rows)
        return {"nll": -(log_probs.sum(1) / batch.target_lengths).mean()}

    # Generation --------------------------------------------------------------------------------------------------

    def generate(self, batch: Batch, options: DecodingOptions) -> Hypotheses:
        """Beam search or sampling."""
        with evaluating(self):
            states, mask = self.encode(batch)
            state, memory = self.decoder.begin(states, mask)
            first = torch.full((len(mask),), self.start, device=mask.device)
            arguments = (self.decoder.stepper(len(self.text)), state, memory, first, self.text.stop, options)
            search = sample if options.sample else beam_search
            return search(*arguments, tuple(self.never), self.text.pad)

    def sample(self, batch: Batch, options: DecodingOptions) -> Samples:
        """Generated ids, [B, K, T], without gradient."""
        hypotheses = self.generate(batch, options)
        return Samples(hypotheses.tokens, hypotheses.lengths)

    def log_probs(self, batch: Batch, samples: Samples, options: DecodingOptions | None = None) -> Tensor:
        """log P of given ids in one teacher-forced pass, [B, K, T]; 0 behind `lengths`. With `options` the distribution
        is the one that `sample` draws from with them."""
        B, K, T = samples.tokens.shape
        states, mask = (tensor.repeat_interleave(K, 0) for tensor in self.encode(batch))     # [B K, S, ..]
        if options is not None:
            inputs = self.shifted(samples.tokens).flatten(0, 1)                              # [B K, T]
            distribution = self.decoder.distribution(states, mask, inputs, len(self.text))
            return rescore(distribution, *samples, self.text.stop, options, tuple(self.never))
        real = torch.arange(T, device=mask.device) < samples.lengths.unsqueeze(-1)           # [B, K, T]
        rows = real.flatten().nonzero().squeeze(1)
        return self._log_likelihood(states, mask, samples.tokens.flatten(0, 1), rows).view(B, K, T)

    def texts(self, batch: Batch, samples: Samples) -> list[list[str]]:
        """Text of each sample, special symbols and tokens behind `lengths` left out."""
        rows = zip(samples.tokens.tolist(), samples.lengths.tolist())
        return [[self.text.decode(ids[:length]) for ids, length in zip(*row)] for row in rows]

    def summarize(self, batch: Targets) -> list[Summary]:
        """The best hypothesis of each document as sentences."""
        found = self.generate(batch, self.decoding)
        texts = self.texts(batch, Samples(found.tokens[:, :1], found.lengths[:, :1]))
        return [
            Summary(name, split_sentences(text), references)
            for name, (text,), references in zip(batch.ids, texts, batch.references)
        ]
