"""Base class of encoder-decoders over one fixed vocabulary."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from datamodules.batch import Batch
from datamodules.documents import UserError
from datamodules.text.language import language_of
from lightning_modules.decoding.beam_search import Hypotheses, beam_search
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.decoding.sampling import rescore, sample
from lightning_modules.networks.encoder_decoder import TiedOutput
from lightning_modules.networks.pretrained import PretrainedEncoderDecoder
from lightning_modules.summarizer import Samples, Summarizer, Summary, evaluating


class SequenceToSequence(Summarizer):
    """Likelihood, generation and rescoring of models that define `encode` and a `decoder`.

    Batches have the fields of `datamodules.batch.target_fields` besides those of the documents.

    Loss terms: `nll`, -log P(y_t), averaged over each summary, then over documents; with label smoothing epsilon also
    `smoothing`, the same mean of -log P averaged over the vocabulary. Their weights are 1 - epsilon and epsilon.
    """

    decoder: TiedOutput | PretrainedEncoderDecoder
    label_smoothing: float = 0.0
    validation_names = ("nll", "smoothing")

    def set_label_smoothing(self, epsilon: float) -> None:
        """Set the weight, in [0, 1), of the uniform distribution over words in the target (Szegedy et al. 2016)."""
        if not 0 <= epsilon < 1:
            raise ValueError(f"label_smoothing is at least 0 and below 1, got {epsilon}")
        self.label_smoothing = epsilon
        self.loss_weights |= {"nll": 1 - epsilon, "smoothing": epsilon}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore as `Summarizer` does, but with the label smoothing of the config instead of the checkpoint's."""
        config_weights = {name: self.loss_weights[name] for name in ("nll", "smoothing") if name in self.loss_weights}
        super().on_load_checkpoint(checkpoint)
        self.loss_weights |= config_weights

    def encode(self, batch: Batch) -> tuple[Any, Any]:
        """Return the encoded documents, for `decoder.begin`: by default states [B, S, H] and a token mask [B, S]."""
        raise NotImplementedError

    @property
    def start(self) -> int:
        """Token that decoding starts with."""
        return self.tokenizer.start

    @property
    def num_outputs(self) -> int:
        """Number of tokens that have a probability; the output layer may have more rows, after these."""
        return len(self.tokenizer)

    def forbidden(self, options: DecodingOptions) -> tuple[int, ...]:
        """Return the ids of tokens that are never generated."""
        return self.tokenizer.pad, self.tokenizer.start

    def decoder_inputs(self, target: Tensor) -> Tensor:
        """Return the token before each target, [..., T]: the start symbol, then the targets without the last."""
        return torch.cat([torch.full_like(target[..., :1], self.start), target[..., :-1]], -1)

    def _token_log_probs(self, batch: Batch, tokens: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return log P of N of the tokens [B, K, T], at flat positions, and its mean over the vocabulary, [N] each."""
        states, mask = self.encode(batch)
        return self.decoder.log_probs(states, mask, self.decoder_inputs(tokens), tokens, positions, self.num_outputs)

    def distribution(self, batch: Batch, tokens: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a function from flat positions in tokens [B, K, T] to log P of the whole vocabulary, [n] -> [n, V]."""
        return self.decoder.distribution(*self.encode(batch), self.decoder_inputs(tokens), self.num_outputs)

    def loss_terms(self, batch: Batch) -> dict[str, Tensor]:
        """Return `nll`, and with label smoothing also `smoothing`: means over each target, then over documents."""
        log_probs, mean_log_probs = self._token_log_probs(batch, batch.target.unsqueeze(1), batch.target_rows)
        terms = {"nll": -self._target_mean(log_probs, batch)}
        if self.label_smoothing:
            terms["smoothing"] = -self._target_mean(mean_log_probs, batch)
        return terms

    @staticmethod
    def _target_mean(values: Tensor, batch: Batch) -> Tensor:
        """Average values of the N tokens at flat positions `target_rows` over each target, then over documents."""
        padded = values.new_zeros(batch.target.numel()).index_copy(0, batch.target_rows, values)
        return (padded.view_as(batch.target).sum(1) / batch.target_lengths).mean()  # [B, T] -> scalar

    def log_probs(self, batch: Batch, samples: Samples, options: DecodingOptions | None = None) -> Tensor:
        """Return log P of K samples of each document, [B, K, T], 0 after their end; see `Generative.log_probs`."""
        tokens, lengths = samples
        if options is not None:  # log P in the distribution that `sample` draws from
            distribution = self.distribution(batch, tokens)
            return rescore(distribution, tokens, lengths, self.tokenizer.stop, options, self.forbidden(options))
        is_token = torch.arange(tokens.shape[-1], device=tokens.device) < lengths.unsqueeze(-1)  # [B, K, T]
        positions = is_token.flatten().nonzero().squeeze(1)  # flat positions of all N tokens
        log_probs, _ = self._token_log_probs(batch, tokens, positions)
        return log_probs.new_zeros(tokens.numel()).index_copy(0, positions, log_probs).view(tokens.shape)

    def generate(self, batch: Batch, options: DecodingOptions) -> Hypotheses:
        """Run beam search, or sampling with `options.sample`, in eval mode, without the tokens that are `forbidden`."""
        limit = getattr(self.decoder, "max_target", None)  # of a pretrained decoder with absolute positions
        if limit is not None and options.max_length > limit:
            raise UserError(f"decoding.max_length is {options.max_length}, the decoder has {limit} positions; lower it")
        with evaluating(self):
            state, memory = self.decoder.begin(*self.encode(batch))  # of generated tokens; of documents
            first = torch.full((batch.batch_size,), self.start, device=next(iter(memory.values())).device)  # [B]
            search = sample if options.sample else beam_search
            return search(
                step=self.decoder.stepper(self.num_outputs), state=state, memory=memory, start=first, options=options,
                stop=self.tokenizer.stop, padding=self.tokenizer.pad, forbidden=self.forbidden(options),
            )  # fmt: skip

    def sample(self, batch: Batch, options: DecodingOptions) -> Samples:
        """Generate K = `options.beam_size` summaries of each document: ids [B, K, T] and lengths, without gradient."""
        hypotheses = self.generate(batch, options)
        return Samples(hypotheses.tokens, hypotheses.lengths)

    def source_ids(self, batch: Batch) -> Tensor:
        """Return the input ids of the encoder, [B, S]."""
        return batch.source

    def texts(self, batch: Batch, samples: Samples) -> list[list[str]]:
        """Return the text of each sample; special symbols and tokens after `lengths` are left out."""
        return self._decode(samples)

    def _sentences(self, text: str) -> list[str]:
        """Return the sentences of a decoded text."""
        return language_of(self.language).split_sentences(text)

    def _decode(self, samples: Samples) -> list[list[str]]:
        """Return the texts of the K samples of each of B documents, without special symbols."""
        texts = []
        for tokens, lengths in zip(samples.tokens.tolist(), samples.lengths.tolist()):  # for each document
            texts.append([self.tokenizer.decode(ids[:length]) for ids, length in zip(tokens, lengths)])
        return texts

    def summarize(self, batch: Batch) -> list[Summary]:
        """Return the best hypothesis of each document as sentences."""
        hypotheses = self.generate(batch, self.decoding)  # best first
        texts = self._decode(Samples(hypotheses.tokens[:, :1], hypotheses.lengths[:, :1]))  # one per document
        return [
            Summary(document_id, self._sentences(text), references)
            for document_id, (text,), references in zip(batch.ids, texts, batch.references)
        ]
