"""The pointer-generator with coverage: See, Liu and Manning, ACL 2017 (arXiv 1704.04368)."""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datamodules.pointer_generator import PointerGeneratorBatch
from datamodules.text.vocabulary import PAD, UNK
from lightning_modules.decoding.beam_search import Hypotheses, State
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.extended_words import (
    as_sentences,
    decoding_layer,
    drawn_log_probs,
    real_rows,
    shifted,
    texts_of,
    words_of,
    write,
)
from lightning_modules.networks.extended_output import (
    copied_words,
    every_word,
    gold_log_probs,
    likeliest_words,
    sampling_memory,
    search_memory,
)
from lightning_modules.networks.output_layer import VocabularySlices
from lightning_modules.pointer_generator.network import Decoded, DecoderState, Memory, PointerGeneratorNetwork
from lightning_modules.summarizer import Samples, Summarizer, Summary, evaluating, log_training


class PointerGenerator(Summarizer):
    """Attention over the document, a vocabulary and a pointer into the document (See et al. 2017, section 2).

    Loss terms: `nll`, the mean over each summary of -log P(y_t); `coverage`, the mean of covloss_t (equation 13).
    The rows of the paper's table 1 are `pointer: false, coverage: false`; `pointer: true, coverage: false`; both true
    with the `CoverageAnnealing` callback.

    Args:
        vocab_size: V, four special symbols included.
        embedding_size: E.
        hidden_size: H of the decoder and of each encoder direction.
        pointer: copy from the document.
        coverage: let attention see its own past, and punish overlap with it; without the callback from the first step.
        dropout: on embeddings and before the output layer; 0 in the paper.
        embedding_std: of the truncated normal that embeddings and output start from.
        learning_rate: of Adagrad, where the command line names no other optimizer.
        decoding: how summaries are decoded; beam 4, 35 to 120 tokens, mean log-probability if not given.
        val_summaries: validation documents that are summarized at each validation in training; -1 for all.
    """

    batch_type = PointerGeneratorBatch

    def __init__(
        self,
        vocab_size: int = 50_000,
        embedding_size: int = 128,
        hidden_size: int = 256,
        pointer: bool = True,
        coverage: bool = True,
        dropout: float = 0.0,
        embedding_std: float = 1e-4,
        learning_rate: float = 0.15,
        decoding: DecodingOptions | None = None,
        val_summaries: int = 256,
    ) -> None:
        super().__init__(vocab_size, decoding or DecodingOptions(), val_summaries)
        self.learning_rate = learning_rate
        self.network = PointerGeneratorNetwork(
            vocab_size, embedding_size, hidden_size, pointer, coverage, dropout, embedding_std
        )
        self.has_coverage = coverage
        self.coverage_gate = float(coverage)
        self.loss_weights["coverage"] = float(coverage)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adagrad with an initial accumulator of 0.1, as in the paper."""
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        return torch.optim.Adagrad(trained, lr=self.learning_rate, initial_accumulator_value=0.1)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["coverage_gate"] = self.coverage_gate

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        if not checkpoint.get("start"):
            self.coverage_gate = checkpoint.get("coverage_gate", self.coverage_gate)

    # Training ----------------------------------------------------------------------------------------------------

    def _decode(self, batch: PointerGeneratorBatch, target_input: Tensor) -> Decoded:
        return self.network(batch.source, batch.lengths, target_input, self.coverage_gate)

    def _log_likelihood(
        self, batch: PointerGeneratorBatch, decoded: Decoded, target: Tensor, rows: Tensor
    ) -> Tensor:
        """log P(y_t) of extended ids [B, K, T], 0 at padding; rows are the flat positions of the real tokens, [N]."""
        found = (decoded.features, decoded.attention, decoded.gate, batch.source_extended)
        return gold_log_probs(self.network.output, *found, target, rows, UNK)

    def loss_terms(self, batch: PointerGeneratorBatch) -> dict[str, Tensor]:
        """`nll` and, with coverage, `coverage`: means over the target, then over the documents."""
        target = batch.target.unsqueeze(1)                                           # [B, 1, T]
        decoded = self._decode(batch, batch.target_input.unsqueeze(1))
        lengths, real = batch.target_lengths, batch.target != PAD
        log_probs = self._log_likelihood(batch, decoded, target, batch.target_rows).squeeze(1)
        terms = {"nll": -(log_probs.sum(1) / lengths).mean()}
        if self.has_coverage:
            terms["coverage"] = (decoded.overlap.squeeze(1).masked_fill(~real, 0).sum(1) / lengths).mean()
        if decoded.gate is not None and self._trainer is not None:
            p_gen = decoded.gate.detach().squeeze(1).sigmoid().masked_fill(~real, 0)
            p_gen = (p_gen.sum(1) / lengths).mean()
            if self.training:
                log_training(self, "p_gen", p_gen, batch)
            else:
                self.log_mean("val/p_gen", p_gen, batch.batch_size)
        return terms

    # Generation --------------------------------------------------------------------------------------------------

    def _step(
        self, tokens: Tensor, state: State, memory: State, count: int | None, layer: VocabularySlices | None = None
    ):
        """`decoding.Step` of the network; with a count it reads the output layer from `layer`."""
        network = self.network
        words = tokens.masked_fill(tokens >= self.vocab_size, UNK)                   # [B, K]
        inputs, attention, _, after = network.step(
            network.feed_word(network.embedding(words)),
            DecoderState(**state),
            Memory(*(memory[name] for name in Memory._fields)),
            self.coverage_gate,
        )
        features, gate = network.features(inputs, after.hidden, after.cell, after.context)
        found = (features, attention, gate, memory)
        if count is None:
            ids, scores = None, every_word(network.output, len(self.text), *found)
        else:
            ids, scores = likeliest_words(*found, layer, count)
        return ids, scores, after._asdict()

    def generate(
        self, batch: PointerGeneratorBatch, options: DecodingOptions, generator: torch.Generator | None = None
    ) -> Hypotheses:
        """Beam search or sampling; tokens are extended ids."""
        with evaluating(self):
            memory, start = self.network.encode(batch.source, batch.lengths)
            output, layer = self.network.output, None
            if options.sample:
                words = sampling_memory(batch.source_extended, self.vocab_size)
            else:
                words = search_memory(output, batch.source, batch.source_extended, UNK)
                layer = decoding_layer(output, len(self.text))
            state = {name: tensor.squeeze(1) for name, tensor in start._asdict().items()}
            return write(partial(self._step, layer=layer), state, memory._asdict() | words, options, generator)

    def sample(self, batch: PointerGeneratorBatch, options: DecodingOptions) -> Samples:
        """Generated extended ids, [B, K, T], without gradient."""
        hypotheses = self.generate(batch, options)
        return Samples(hypotheses.tokens, hypotheses.lengths)

    def log_probs(
        self, batch: PointerGeneratorBatch, samples: Samples, options: DecodingOptions | None = None
    ) -> Tensor:
        """log P of given extended ids in one teacher-forced pass, [B, K, T]; 0 at padding. With `options` the
        distribution is the one that `sample` draws from with them."""
        decoded = self._decode(batch, shifted(samples.tokens, self.vocab_size))
        if options is None:
            return self._log_likelihood(batch, decoded, samples.tokens, real_rows(samples.tokens))
        outputs = (decoded.features, decoded.attention, decoded.gate, batch.source_extended)
        return drawn_log_probs(self.network.output, len(self.text), *outputs, samples, options)

    def texts(self, batch: PointerGeneratorBatch, samples: Samples) -> list[list[str]]:
        """Text of extended ids [B, K, T], K a document."""
        return texts_of(self.text, samples, batch.added, self.vocab_size)

    def source_ids(self, batch: PointerGeneratorBatch) -> Tensor:
        """Extended ids of the documents, [B, S]."""
        return batch.source_extended

    def summarize(self, batch: PointerGeneratorBatch) -> list[Summary]:
        """The best hypothesis of each document as text, with the words that were copied."""
        hypotheses = self.generate(batch, self.decoding)
        best = Samples(hypotheses.tokens[:, :1], hypotheses.lengths[:, :1])
        copied = self.explain(batch, best)[1].tolist() if self.network.pointer is not None else None
        summaries = []
        for i, ids in enumerate(best.tokens[:, 0].tolist()):
            words = words_of(self.text, ids[: int(best.lengths[i, 0])], batch.added[i], self.vocab_size)
            marks = copied[i][0][: len(words)] if copied is not None else None
            summaries.append(Summary(batch.ids[i], as_sentences(self.text, words), batch.references[i], words, marks))
        return summaries

    def explain(self, batch: PointerGeneratorBatch, samples: Samples) -> tuple[Decoded, Tensor]:
        """Teacher-forced pass over samples [B, K, T].

        Returns:
            The decoder's outputs, and for every token whether copying gave it more probability than the vocabulary did,
            [B, K, T].
        """
        with evaluating(self):
            target = samples.tokens
            decoded = self._decode(batch, shifted(target, self.vocab_size))
            found = (decoded.features, decoded.attention, decoded.gate, batch.source_extended)
            return decoded, copied_words(self.network.output, *found, target)

    def attention_of(
        self, batch: PointerGeneratorBatch, index: int
    ) -> tuple[list[str], list[str], np.ndarray, np.ndarray]:
        """What the heat map of one document's summary shows.

        Returns:
            The document's words [S], the summary's [T], the attention [T, S], the coverage after the last word [S].
        """
        hypotheses = self.generate(batch, self.decoding)
        samples = Samples(hypotheses.tokens[:, :1], hypotheses.lengths[:, :1])
        attention = self.explain(batch, samples)[0].attention[index, 0]
        length, words = int(samples.lengths[index, 0]), int(batch.lengths[index])
        attention = attention[:length, :words].float().cpu().numpy()
        decode = lambda ids: self.text.decode(ids.tolist(), batch.added[index], self.vocab_size)  # noqa: E731
        source = decode(batch.source_extended[index, :words])
        return source, decode(samples.tokens[index, 0, :length]), attention, attention.sum(0)
