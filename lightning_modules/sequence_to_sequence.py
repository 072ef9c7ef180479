"""Base class of encoder-decoders over one fixed vocabulary."""

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
    """Fields of a batch that `SequenceToSequence` reads besides the documents."""

    ids: list[str]
    references: list[list[str]]
    target: Tensor  # ids, end symbol included, [B, T]
    target_lengths: Tensor  # [B]
    target_rows: Tensor  # flat positions of the tokens in `target`, padding left out, [N]


class SequenceToSequence(Summarizer):
    """Likelihood, generation and rescoring of models that define `encode` and a `decoder`.

    Loss term: `nll`, the mean over each summary of -log P(y_t), then over the documents.
    """

    decoder: EncoderDecoder | PretrainedEncoderDecoder

    @abstractmethod
    def encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the states of the documents [B, S, H] and a mask that is True at their tokens [B, S]."""

    @abstractmethod
    def source_ids(self, batch: Batch) -> Tensor:
        """Return the input ids of the encoder, [B, S]."""

    @property
    def start(self) -> int:
        """Token that decoding starts with."""
        return self.text.start

    @property
    def forbidden_tokens(self) -> set[int]:
        """Tokens that are never generated."""
        return {self.text.pad, self.text.start}

    # Training ----------------------------------------------------------------------------------------------------

    def decoder_inputs(self, target: Tensor) -> Tensor:
        """Shift targets [..., T] right by the start symbol."""
        return torch.cat([torch.full_like(target[..., :1], self.start), target[..., :-1]], -1)

    def _log_likelihood(self, states: Tensor, mask: Tensor, target: Tensor, rows: Tensor) -> Tensor:
        """Return log P(y_t) of targets [B, T], 0 at padding; `rows` are the flat positions of the tokens, [N]."""
        log_probs = self.decoder.log_prob(states, mask, self.decoder_inputs(target), target, rows, len(self.text))
        return log_probs.new_zeros(target.numel()).index_copy(0, rows, log_probs).view(target.shape)

    def loss_terms(self, batch: Targets) -> dict[str, Tensor]:
        """Return `nll`: the mean over each target, then over documents."""
        log_probs = self._log_likelihood(*self.encode(batch), batch.target, batch.target_rows)
        return {"nll": -(log_probs.sum(1) / batch.target_lengths).mean()}

    # Generation --------------------------------------------------------------------------------------------------

    def generate(self, batch: Batch, options: DecodingOptions) -> Hypotheses:
        """Run beam search or sampling."""
        with evaluating(self):
            states, mask = self.encode(batch)
            state, memory = self.decoder.begin(states, mask)
            first = torch.full((len(mask),), self.start, device=mask.device)
            search = sample if options.sample else beam_search
            return search(
                step=self.decoder.stepper(len(self.text)),
                state=state,
                memory=memory,
                start=first,
                stop=self.text.stop,
                options=options,
                forbidden=tuple(self.forbidden_tokens),
                padding=self.text.pad,
            )

    def sample(self, batch: Batch, options: DecodingOptions) -> Samples:
        """Return generated ids, [B, K, T], without gradient."""
        hypotheses = self.generate(batch, options)
        return Samples(hypotheses.tokens, hypotheses.lengths)

    def log_probs(self, batch: Batch, samples: Samples, options: DecodingOptions | None = None) -> Tensor:
        """Return the log-probabilities of samples in one teacher-forced pass, [B, K, T]; 0 after `lengths`.

        With `options` the distribution is the one that `sample` draws from with these options.
        """
        B, K, T = samples.tokens.shape
        states, mask = (tensor.repeat_interleave(K, 0) for tensor in self.encode(batch))     # [B K, S, ..]
        if options is not None:
            inputs = self.decoder_inputs(samples.tokens).flatten(0, 1)                              # [B K, T]
            distribution = self.decoder.distribution(states, mask, inputs, len(self.text))
            return rescore(distribution, *samples, self.text.stop, options, tuple(self.forbidden_tokens))
        real = torch.arange(T, device=mask.device) < samples.lengths.unsqueeze(-1)           # [B, K, T]
        rows = real.flatten().nonzero().squeeze(1)
        return self._log_likelihood(states, mask, samples.tokens.flatten(0, 1), rows).view(B, K, T)

    def texts(self, batch: Batch, samples: Samples) -> list[list[str]]:
        """Return the text of each sample; special symbols and tokens after `lengths` are left out."""
        texts = []
        for tokens, lengths in zip(samples.tokens.tolist(), samples.lengths.tolist()):
            texts.append([self.text.decode(ids[:length]) for ids, length in zip(tokens, lengths)])
        return texts

    def summarize(self, batch: Targets) -> list[Summary]:
        """Return the best hypothesis of each document as sentences."""
        hypotheses = self.generate(batch, self.decoding)
        texts = self.texts(batch, Samples(hypotheses.tokens[:, :1], hypotheses.lengths[:, :1]))
        return [
            Summary(document_id, split_sentences(text), references)
            for document_id, (text,), references in zip(batch.ids, texts, batch.references)
        ]
