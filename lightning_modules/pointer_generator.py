"""The pointer-generator with coverage: See, Liu and Manning, ACL 2017 (arXiv 1704.04368)."""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datamodules.pointer_generator import PointerGeneratorBatch
from datamodules.text.vocabulary import PAD, START, STOP, UNK
from datamodules.text.words import sentences_of
from lightning_modules.decoding.beam_search import Hypotheses, State, beam_search
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.decoding.sampling import sample
from lightning_modules.networks.copying import (
    best_candidates,
    copied_mass,
    extended_log_probs,
    first_positions,
    mix_log_probs,
)
from lightning_modules.networks.output_layer import (
    ScreenedVocabulary,
    VocabularySlices,
    best_words,
    linear_log_prob,
    vocabulary_logits,
    wide,
)
from lightning_modules.networks.pointer_generator import Decoded, DecoderState, Memory, PointerGeneratorNetwork
from lightning_modules.summarizer import Samples, Summarizer, Summary, evaluating


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
        compile_network: `torch.compile` the encoder and decoder.
    """

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
        compile_network: bool = False,
    ) -> None:
        super().__init__(vocab_size, decoding or DecodingOptions(), val_summaries)
        self.learning_rate = learning_rate
        self.network = PointerGeneratorNetwork(
            vocab_size, embedding_size, hidden_size, pointer, coverage, dropout, embedding_std
        )
        self.coverage_gate = float(coverage)
        self.loss_weights["coverage"] = float(coverage)
        self._read_output: tuple[tuple, VocabularySlices | ScreenedVocabulary] | None = None
        if compile_network:
            self.network.compile()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adagrad with an initial accumulator of 0.1, as in the paper."""
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        return torch.optim.Adagrad(trained, lr=self.learning_rate, initial_accumulator_value=0.1)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["coverage_gate"] = self.coverage_gate

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self.coverage_gate = checkpoint.get("coverage_gate", self.coverage_gate)

    # Training ----------------------------------------------------------------------------------------------------

    def _decode(self, batch: PointerGeneratorBatch, target_input: Tensor) -> Decoded:
        return self.network(batch.source, batch.lengths, target_input, self.coverage_gate)

    def _log_likelihood(
        self, batch: PointerGeneratorBatch, decoded: Decoded, target: Tensor, rows: Tensor
    ) -> Tensor:
        """log P(y_t) of extended ids [B, K, T], 0 at padding; the output layer is evaluated at real tokens only.

        Args:
            rows: flat positions of the real tokens, [N].
        """
        output = self.network.output
        gold = target.flatten()[rows]                                                # [N]
        known = gold < self.vocab_size
        features = decoded.features.flatten(0, 2)[rows]                              # [N, H]
        log_probs = linear_log_prob(features, output.weight, output.bias, gold.masked_fill(~known, UNK))
        if decoded.gate is not None:
            mass = copied_mass(decoded.attention, batch.source_extended.unsqueeze(1), target).flatten()[rows]
            log_probs = mix_log_probs(
                log_probs.masked_fill(~known, float("-inf")), mass, decoded.gate.flatten()[rows]
            )
        flat = log_probs.new_zeros(target.numel()).index_copy(0, rows, log_probs)
        return flat.view(target.shape)

    def loss_terms(self, batch: PointerGeneratorBatch) -> dict[str, Tensor]:
        """`nll` and, with coverage, `coverage`: means over the target, then over the documents."""
        target = batch.target.unsqueeze(1)                                           # [B, 1, T]
        decoded = self._decode(batch, batch.target_input.unsqueeze(1))
        lengths, real = batch.target_lengths, batch.target != PAD
        log_probs = self._log_likelihood(batch, decoded, target, batch.target_rows).squeeze(1)
        terms = {"nll": -(log_probs.sum(1) / lengths).mean()}
        if self.network.attention.coverage is not None:
            terms["coverage"] = (decoded.overlap.squeeze(1).masked_fill(~real, 0).sum(1) / lengths).mean()
        if decoded.gate is not None and self._trainer is not None:
            p_gen = decoded.gate.detach().squeeze(1).sigmoid().masked_fill(~real, 0)
            p_gen = (p_gen.sum(1) / lengths).mean()
            if self.training:
                self.log("train/p_gen", p_gen, batch_size=batch.batch_size)
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
        if count is None:
            ids, scores = None, self._all_log_probs(features, attention, gate, memory)
        else:
            best = best_words(features, layer, count)
            ids, scores = best.ids, best.log_probs                                   # [B, K, C]
            if gate is not None:
                logits = torch.baddbmm(memory["row_bias"].unsqueeze(1), features, memory["rows"].transpose(1, 2))
                known = (memory["source"], memory["first"], memory["in_source"])
                ids, scores = best_candidates(best, wide(logits) - best.normalizer, attention, gate, *known)
        return ids, scores, after._asdict()

    def _all_log_probs(self, features: Tensor, attention: Tensor, gate: Tensor | None, memory: State) -> Tensor:
        """log P of every word, [B, K, V], with a pointer [B, K, V + OOV]."""
        output = self.network.output
        logits = vocabulary_logits(features, output.weight, output.bias)             # [B, K, V]
        logits[..., len(self.text) :] = float("-inf")  # rows of the output layer without a word
        if gate is None:
            return logits.log_softmax(-1)
        size = self.vocab_size + int(memory["extra"].max())
        return extended_log_probs(logits, attention, gate, memory["source"].unsqueeze(1), size)

    def _decoding_memory(self, batch: PointerGeneratorBatch, memory: Memory) -> State:
        """What belongs to the documents of a batch in decoding."""
        source, V = batch.source_extended, self.vocab_size
        in_source = torch.zeros(len(source), V, dtype=torch.bool, device=source.device)
        in_source.scatter_(1, batch.source, True)
        # a word that the vocabulary lacks is read as UNK; UNK itself is no word of the document
        in_source[:, UNK] = (source == UNK).any(1)
        output = self.network.output
        return memory._asdict() | {
            "source": source,
            "first": first_positions(source),
            "in_source": in_source,
            "extra": (source.amax(1) - V + 1).clamp_min(0),
            "rows": output.weight[batch.source],  # of the output layer, for the document's words: [B, S, H]
            "row_bias": output.bias[batch.source].masked_fill(source >= V, float("-inf")),
        }

    def _output_layer(self, screening: bool) -> VocabularySlices | ScreenedVocabulary:
        """The output layer as decoding reads it; made once for all batches between two steps of training."""
        weight, bias = self.network.output.weight, self.network.output.bias
        words = len(self.text)  # rows behind the last word are left out
        key = (weight.data_ptr(), weight._version, bias._version, words, screening)
        if self._read_output is None or self._read_output[0] != key:
            form = ScreenedVocabulary if screening else VocabularySlices
            self._read_output = key, form.of(weight[:words], bias[:words])
        return self._read_output[1]

    def on_train_batch_start(self, batch: PointerGeneratorBatch, batch_idx: int) -> None:
        super().on_train_batch_start(batch, batch_idx)
        self._read_output = None  # its memory is the training's

    def generate(
        self, batch: PointerGeneratorBatch, options: DecodingOptions, generator: torch.Generator | None = None
    ) -> Hypotheses:
        """Beam search or sampling; tokens are extended ids."""
        with evaluating(self):
            memory, start = self.network.encode(batch.source, batch.lengths)
            forbidden = (PAD, START) if options.allow_unknown else (PAD, UNK, START)
            step = partial(self._step, layer=None if options.sample else self._output_layer(options.screening))
            state = {name: tensor.squeeze(1) for name, tensor in start._asdict().items()}
            first = torch.full_like(batch.source[:, 0], START)
            arguments = (step, state, self._decoding_memory(batch, memory), first, STOP, options)
            if options.sample:
                return sample(*arguments, forbidden, PAD, generator)
            return beam_search(*arguments, forbidden, PAD)

    def sample(self, batch: PointerGeneratorBatch, options: DecodingOptions) -> Samples:
        """Generated extended ids, [B, K, T], without gradient."""
        hypotheses = self.generate(batch, options)
        return Samples(hypotheses.tokens, hypotheses.lengths)

    def log_probs(self, batch: PointerGeneratorBatch, samples: Samples) -> Tensor:
        """log P of given extended ids in one teacher-forced pass, [B, K, T]; 0 at padding."""
        target, rows = samples.tokens, (samples.tokens != PAD).flatten().nonzero().squeeze(1)
        return self._log_likelihood(batch, self._decode(batch, self.shifted(target)), target, rows)

    def shifted(self, target: Tensor) -> Tensor:
        """Decoder inputs of targets: the start symbol in front, UNK for words outside the vocabulary, [..., T]."""
        inputs = torch.cat([torch.full_like(target[..., :1], START), target[..., :-1]], -1)
        return inputs.masked_fill(inputs >= self.vocab_size, UNK)

    def _words(self, batch: PointerGeneratorBatch, index: int, ids: list[int]) -> list[str]:
        """Words of extended ids of a document, special symbols left out."""
        kept = [token for token in ids if token not in (PAD, START, STOP)]
        return self.text.decode(kept, batch.added[index], self.vocab_size)

    def _sentences(self, words: list[str]) -> list[str]:
        return [self.text.detokenize(sentence) for sentence in sentences_of(words)]

    def texts(self, batch: PointerGeneratorBatch, samples: Samples) -> list[list[str]]:
        """Text of extended ids [B, K, T], K a document."""
        rows, lengths = samples.tokens.tolist(), samples.lengths.tolist()
        return [
            [" ".join(self._sentences(self._words(batch, i, ids[:n]))) for ids, n in zip(rows[i], lengths[i])]
            for i in range(batch.batch_size)
        ]

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
            words = self._words(batch, i, ids[: int(best.lengths[i, 0])])
            marks = copied[i][0][: len(words)] if copied is not None else None
            summaries.append(Summary(batch.ids[i], self._sentences(words), batch.references[i], words, marks))
        return summaries

    def explain(self, batch: PointerGeneratorBatch, samples: Samples) -> tuple[Decoded, Tensor]:
        """Teacher-forced pass over samples [B, K, T].

        Returns:
            The decoder's outputs, and for every token whether copying gave it more probability than the vocabulary did,
            [B, K, T].
        """
        with evaluating(self):
            target = samples.tokens
            decoded = self._decode(batch, self.shifted(target))
            mass = copied_mass(decoded.attention, batch.source_extended.unsqueeze(1), target)
            known = target.clamp_max(self.vocab_size - 1)
            output = self.network.output
            generated = linear_log_prob(decoded.features.flatten(0, 2), output.weight, output.bias, known.flatten())
            p_gen = decoded.gate.sigmoid() if decoded.gate is not None else torch.ones_like(mass)
            generated = (p_gen * generated.view_as(mass).exp()).masked_fill(target >= self.vocab_size, 0)
            return decoded, (1 - p_gen) * mass > generated

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
