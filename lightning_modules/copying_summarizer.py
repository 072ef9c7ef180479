"""Base class of models that copy words from the document: decoding, sampling, scoring, explanation and text.

Token ids come from an extended vocabulary: ids below V are vocabulary words, id V + k is the k-th word of a document
that the vocabulary lacks (an out-of-vocabulary word, OOV).
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from datamodules.batch import Batch
from datamodules.documents import UserError
from datamodules.text.vocabulary import PAD, START, STOP, UNK
from lightning_modules.decoding.beam_search import Hypotheses, State, beam_search
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.decoding.sampling import rescore, sample, sample_with
from lightning_modules.networks import copying
from lightning_modules.networks.copying import CopyOutputs, PermittedMixture, target_log_probs
from lightning_modules.networks.dropout import without_dropout
from lightning_modules.networks.kept_steps import KeptStep, kept_rows
from lightning_modules.networks.output_layer import DecodingLayer
from lightning_modules.summarizer import Samples, Summarizer, Summary, evaluating


@dataclass(frozen=True)
class EmbeddingOptions:
    """Options of the word embedding."""

    size: int = 128
    """Width E."""
    std: float = 0.1
    """Standard deviation of the normal distribution from which it is initialized."""


class CopyingSummarizer(Summarizer):
    """Generation, scoring and explanation of models over an extended vocabulary.

    A subclass sets `network` and implements `decode` (teacher-forced) and `decoder_step`. Its network has an output
    layer `output` [V, H] and a method `encode(source, lengths)`, which returns the memory (encoder output for the
    decoder) and the initial state of the decoder, both named tuples of tensors.

    Its batches have the fields `source` (ids below V) and `source_extended`, both [B, S], or [B, M, I] for M parts of I
    tokens of each document, `lengths` (tokens of each document or part), and `oov_words` (OOV words of each document).
    """

    network: nn.Module
    has_pointer = True  # whether the network copies

    def check_data(self, data: Any) -> None:
        """Check also that model and data have the same number of agents, and of words, after which OOV ids begin."""
        super().check_data(data)
        for name in ("vocab_size", "agents"):
            number = getattr(self, name, None)  # None for a model without agents
            data_number = getattr(data, name, number)
            if number is not None and data_number != number:
                raise UserError(f"model.{name} is {number}, data.{name} {data_number}: give both the same {name}")

    @abstractmethod
    def decode(self, batch: Batch, target_input: Tensor) -> Any:
        """Return a named tuple with the fields of `CopyOutputs`, [B, K, T, ...], for target inputs [B, K, T]."""

    @abstractmethod
    def decoder_step(self, words: Tensor, state: State, memory: State) -> tuple[CopyOutputs, State]:
        """Run one decoder step for K hypotheses of each document: the outputs, each [B, K, ...], and the next state.

        `words` are the ids of the previous words, below V, [B, K]. State and memory are dictionaries with the fields of
        the named tuples that `network.encode` returns.
        """

    def decoder_inputs(self, target: Tensor) -> Tensor:
        """Shift targets [..., T] right by the start symbol; UNK stands for OOV words."""
        inputs = torch.cat([torch.full_like(target[..., :1], START), target[..., :-1]], -1)
        return inputs.masked_fill(inputs >= self.vocab_size, UNK)

    def target_log_probs(self, batch: Batch, outputs: CopyOutputs, target: Tensor, rows: Tensor) -> Tensor:
        """Return log P(y_t) of extended ids [B, K, T]: 0 except at `rows`, the flat positions of N tokens, [N]."""
        return target_log_probs(self.network.output, outputs, self.source_ids(batch), target, rows, UNK)

    def log_probs(self, batch: Batch, samples: Samples, options: DecodingOptions | None = None) -> Tensor:
        """Return log P of samples, [B, K, T], 0 at padding; with `options`, the log P with which `sample` draws."""
        outputs = self.decode(batch, self.decoder_inputs(samples.tokens))
        if options is None:
            rows = (samples.tokens != PAD).flatten().nonzero().squeeze(1)            # [N]
            return self.target_log_probs(batch, outputs, samples.tokens, rows)
        if options.is_untruncated and not options.no_repeat_ngram:  # faster: P of the samples' tokens alone
            return self.permitted_log_probs(batch, outputs, samples, options, kept=())
        source = self.source_ids(batch)
        num_ids = max(self.vocab_size, int(source.max()) + 1)  # V + the most OOV words of a document
        tokens_per_document = samples.tokens[0].numel()                              # K T
        # [B, K, T, ...] -> [B K T, ...], from which `rescore` selects rows
        features = outputs.features.flatten(0, 2)
        attention = outputs.attention.flatten(0, 2)
        gate = None if outputs.gate is None else outputs.gate.flatten()  # None for a model that does not copy

        def distribution(rows: Tensor) -> Tensor:
            selected = CopyOutputs(features[rows], attention[rows], None if gate is None else gate[rows])
            sources = source[rows // tokens_per_document]                            # [n, S]
            return copying.all_log_probs(self.network.output, len(self.tokenizer), selected, sources, num_ids)

        forbidden = forbidden_tokens(options)
        return rescore(distribution, samples.tokens, samples.lengths, STOP, options, forbidden)

    def permitted_log_probs(
        self, batch: Batch, outputs: CopyOutputs, samples: Samples, options: DecodingOptions, kept: Sequence[KeptStep]
    ) -> Tensor:
        """Compute `log_probs` without P of all words, if forbidden tokens depend on positions alone, not n-grams.

        `kept`: the steps that drew the samples, whose P is used instead of computing it again; empty if there are none.
        """
        tokens = samples.tokens
        always_forbidden = forbidden_tokens(options)
        steps = torch.arange(tokens.shape[-1], device=tokens.device)
        in_sample = steps < samples.lengths.unsqueeze(-1)                            # [B, K, T]
        # before the minimum length the end symbol is forbidden, too, so these positions are computed separately
        end_allowed = min(options.min_length, tokens.shape[-1])  # first step at which a sample may end
        cases = [(0, end_allowed, (*always_forbidden, STOP)), (end_allowed, tokens.shape[-1], always_forbidden)]
        log_probs = 0  # each case adds 0 at the positions of the other one
        for start, end, forbidden in cases:
            if start == end:
                continue
            if kept:  # rows of samples that have ended are among those of a step; they are masked below
                rows, precomputed = kept_rows(kept, start, end)
            else:
                is_scored = in_sample & (start <= steps) & (steps < end)             # [B, K, T]
                rows, precomputed = is_scored.flatten().nonzero().squeeze(1), ()
            log_probs = log_probs + target_log_probs(
                output=self.network.output, outputs=outputs, source=self.source_ids(batch), target=tokens,
                rows=rows, unknown=UNK, words=len(self.tokenizer), forbidden=forbidden, precomputed=precomputed,
            )  # fmt: skip
        return log_probs.masked_fill(~in_sample, 0)

    def _outputs(self, tokens: Tensor, state: State, memory: State) -> tuple[CopyOutputs, State]:
        """Run `decoder_step` after the previous tokens, extended ids [B, K], with OOV words read as UNK."""
        return self.decoder_step(tokens.masked_fill(tokens >= self.vocab_size, UNK), state, memory)

    def _step(
        self, layer: DecodingLayer, tokens: Tensor, state: State, memory: State, count: int | None
    ) -> tuple[Tensor | None, Tensor, State]:
        """Score all words (`count` None, for sampling), or candidates with the `count` best; a `beam_search.Step`."""
        outputs, next_state = self._outputs(tokens, state, memory)
        source = memory["source"]
        if count is None:
            num_ids = max(self.vocab_size, int(source.max()) + 1)  # V + the most OOV words of a document
            words = len(self.tokenizer)  # V may be larger: P = 0 beyond the words
            log_probs = copying.all_log_probs(self.network.output, words, outputs, source.unsqueeze(1), num_ids)
            return None, log_probs, next_state
        mixture = PermittedMixture.of(layer, outputs, source)
        return *mixture.candidates(count, memory["first"]), next_state  # first occurrence of each source word

    def _draw(
        self,
        layer: DecodingLayer,
        greedy_first: bool,
        kept: list[KeptStep] | None,
        tokens: Tensor,
        state: State,
        memory: State,
        blocked: Tensor,
    ) -> tuple[Tensor, Tensor, State]:
        """Draw the next tokens, see `Draw`; the first sample's greedily with `greedy_first`. Add the step to `kept`."""
        outputs, state = self._outputs(tokens, state, memory)
        with torch.no_grad():
            mixture = PermittedMixture.of(layer, outputs, memory["source"], blocked)
            tokens = mixture.draw()
            if greedy_first:
                tokens[:, 0] = mixture.most_probable(memory["first"])[:, 0]  # first occurrence of source words
            log_probs = mixture.log_probs(tokens.unsqueeze(-1)).squeeze(-1)
        if kept is not None:
            kept.append(KeptStep(memory["documents"], outputs, mixture.probabilities, mixture.total))
        return tokens, log_probs, state

    def generate(self, batch: Batch, options: DecodingOptions, kept: list[KeptStep] | None = None) -> Hypotheses:
        """Run beam search, or sampling with `options.sample`, in eval mode; generated tokens are extended ids.

        With a list `kept`, sampling from the untruncated distribution, with gradient and without dropout, adds its
        steps to the list.
        """
        extended = self.source_ids(batch)
        forbidden = forbidden_tokens(options)
        with evaluating(self) if kept is None else without_dropout(self):
            encoded, initial = self.network.encode(batch.source, batch.lengths)
            memory = encoded._asdict() | {"source": extended, "first": copying.first_positions(extended)}  # for copying
            memory["documents"] = torch.arange(len(extended), device=extended.device)  # of `KeptStep`, [B]
            state = {name: tensor.squeeze(1) for name, tensor in initial._asdict().items()}  # [B, 1, ...] -> [B, ...]
            start_ids = torch.full_like(extended[:, 0], START)                       # [B]
            num_words = len(self.tokenizer)
            output = self.network.output
            layer = DecodingLayer.of(output.weight[:num_words], output.bias[:num_words])  # V may be larger
            if options.sample and options.is_untruncated:  # draws without the probabilities of all words
                draw = partial(self._draw, layer, options.greedy_first, kept)
                return sample_with(draw, state, memory, start_ids, STOP, options, forbidden, PAD)
            search = sample if options.sample else beam_search
            return search(partial(self._step, layer), state, memory, start_ids, STOP, options, forbidden, PAD)

    def sample(self, batch: Batch, options: DecodingOptions) -> Samples:
        """Return generated extended ids, [B, K, T], without gradient."""
        hypotheses = self.generate(batch, options)
        return Samples(hypotheses.tokens, hypotheses.lengths)

    def _best(self, batch: Batch) -> Samples:
        """Return the best hypothesis of each document, [B, 1, T]."""
        hypotheses = self.generate(batch, self.decoding)
        return Samples(hypotheses.tokens[:, :1], hypotheses.lengths[:, :1])

    def summarize(self, batch: Batch) -> list[Summary]:
        """Return the best hypothesis of each document as text, with a mark for each copied word."""
        best = self._best(batch)
        copied = self.explain(batch, best)[1][:, 0].tolist() if self.has_pointer else None  # K = 1; True if copied
        summaries = []
        for i, (tokens, length) in enumerate(zip(best.tokens[:, 0].tolist(), best.lengths[:, 0].tolist())):
            words = self._words(tokens[:length], batch.oov_words[i])
            marks = None if copied is None else copied[i][: len(words)]  # without the end symbol and padding
            sentences = self.tokenizer.sentences(words)
            summaries.append(Summary(batch.ids[i], sentences, batch.references[i], words=words, copied=marks))
        return summaries

    def source_ids(self, batch: Batch) -> Tensor:
        """Return the extended ids of the documents, [B, S]; parts follow each other, each with its padding."""
        return batch.source_extended.flatten(1)

    def texts(self, batch: Batch, samples: Samples) -> list[list[str]]:
        """Return the text of samples [B, K, T], K for each document; tokens after `lengths` are left out."""
        texts = []
        for rows, lengths, oov_words in zip(samples.tokens.tolist(), samples.lengths.tolist(), batch.oov_words):
            words = [self._words(ids[:length], oov_words) for ids, length in zip(rows, lengths)]
            texts.append([" ".join(self.tokenizer.sentences(sample_words)) for sample_words in words])
        return texts

    def _words(self, ids: Iterable[int], oov_words: Sequence[str]) -> list[str]:
        """Return the words of extended ids; special symbols except UNK are left out."""
        ids = [token for token in ids if token not in (PAD, START, STOP)]
        return self.tokenizer.decode(ids, oov_words, self.vocab_size)

    def explain(self, batch: Batch, samples: Samples) -> tuple[Any, Tensor]:
        """Return the outputs of `decode` for samples, and whether a token is more copied than generated, [B, K, T]."""
        with evaluating(self):
            outputs = self.decode(batch, self.decoder_inputs(samples.tokens))
            copied = copying.copied_words(self.network.output, outputs, self.source_ids(batch), samples.tokens)
            return outputs, copied

    def attention_map(self, batch: Batch, index: int) -> tuple[list[str], list[str], np.ndarray, np.ndarray]:
        """Generate the summary of document `index` of a batch, and return what a plot of its attention needs.

        Returns:
            The S words of the document and the T words of the summary; the copy attention, [T, S]; its sum over T, [S].
        """
        best = self._best(batch)
        length = int(best.lengths[index, 0])
        positions = torch.arange(batch.source.shape[-1])
        real = (positions < batch.lengths[index].unsqueeze(-1)).flatten()            # False at padding, [S] or [M I]
        outputs, _ = self.explain(batch, best)  # without flags of copied words
        attention = outputs.attention[index, 0, :length].float().cpu()[:, real].numpy()  # [T, S]
        source_ids = self.source_ids(batch)[index].cpu()[real].tolist()
        summary_ids = best.tokens[index, 0, :length].tolist()
        source = self.tokenizer.decode(source_ids, batch.oov_words[index], self.vocab_size)
        summary = self.tokenizer.decode(summary_ids, batch.oov_words[index], self.vocab_size)
        return source, summary, attention, attention.sum(0)


def forbidden_tokens(options: DecodingOptions) -> tuple[int, ...]:
    """Return the ids of the special symbols that are never generated; UNK is one of them unless options allow it."""
    return (PAD, START) if options.allow_unknown else (PAD, UNK, START)
