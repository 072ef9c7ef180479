"""Pointer-generator with coverage: See, Liu and Manning, ACL 2017 (arXiv 1704.04368)."""

from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.nn.functional import embedding

from datamodules.pointer_generator import PointerGeneratorBatch
from datamodules.text.vocabulary import PAD
from lightning_modules.copying_summarizer import CopyingSummarizer, EmbeddingOptions
from lightning_modules.decoding.beam_search import State
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.lightning_internals import trainer_of
from lightning_modules.logged_values import log_mean
from lightning_modules.networks.copying import CopyOutputs
from lightning_modules.networks.kept_steps import KeptStep, stack_outputs
from lightning_modules.networks.output_layer import KEPT_ELEMENTS
from lightning_modules.options import OptimizerOptions
from lightning_modules.pointer_generator.network import Decoded, DecoderState, Memory, PointerGeneratorNetwork
from lightning_modules.summarizer import Samples


class PointerGenerator(CopyingSummarizer):
    """Attentional sequence-to-sequence model with a pointer and coverage (See et al. 2017, section 2).

    Loss terms: `nll`, the mean over each summary of -log P(y_t); `coverage`, the mean of covloss_t (equation 13).
    The rows of the paper's table 1 are `pointer: false, coverage: false`; `pointer: true, coverage: false`; both true
    with the `CoverageAnnealing` callback.

    Args:
        vocab_size: V, including the four special symbols.
        embedding: embedding of words; `std` is that of a truncated normal, which also initializes the output layer.
        hidden_size: H of the decoder and of each encoder direction.
        pointer: copy words from the document.
        coverage: condition attention on its own past and penalize overlap with it. Without the `CoverageAnnealing`
            callback, from the first step on.
        dropout: dropout on embeddings and before the output layer; 0 in the paper.
        optimizer: learning rate of Adagrad.
        decoding: decoding options; by default beam size 4, 35 to 120 tokens, mean log-probability.
        val_summaries: number of validation documents summarized at each validation during training; -1 for all.
    """

    batch_type = PointerGeneratorBatch
    validation_names = ("nll", "coverage", "p_gen")

    def __init__(
        self,
        vocab_size: int = 50_000,
        embedding: EmbeddingOptions = EmbeddingOptions(size=128, std=1e-4),
        hidden_size: int = 256,
        pointer: bool = True,
        coverage: bool = True,
        dropout: float = 0.0,
        optimizer: OptimizerOptions = OptimizerOptions(lr=0.15),
        decoding: DecodingOptions | None = DecodingOptions(),
        val_summaries: int = 256,
    ) -> None:
        super().__init__(vocab_size, decoding, val_summaries)
        self.optimizer = optimizer
        self.network = PointerGeneratorNetwork(
            vocab_size=vocab_size, embedding_size=embedding.size, hidden_size=hidden_size, pointer=pointer,
            coverage=coverage, dropout=dropout, embedding_std=embedding.std,
        )  # fmt: skip
        self.has_pointer = pointer
        self.has_coverage = coverage
        self.coverage_gate = float(coverage)  # 1: attend with coverage; `CoverageAnnealing` sets it and the weight
        self.loss_weights["coverage"] = float(coverage)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return Adagrad with an initial accumulator of 0.1, as in the paper."""
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        return torch.optim.Adagrad(trained, lr=self.optimizer.lr, initial_accumulator_value=0.1)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["coverage_gate"] = self.coverage_gate

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore `coverage_gate` (0 before `CoverageAnnealing` turns coverage on, then 1) when a run continues.

        A run that starts from another run's weights keeps the gate that its arguments set. If the other model had no
        coverage, w_c, by which attention reads it, is as initialized: the paper adds it to a trained model (section 4).
        """
        if checkpoint.get("start") and self.has_coverage:  # set by `StartFrom`: the weights are those of another run
            w_c = self.network.attention.coverage.detach()
            checkpoint["state_dict"].setdefault("network.attention.coverage", w_c)
        super().on_load_checkpoint(checkpoint)
        if not checkpoint.get("start"):
            self.coverage_gate = checkpoint.get("coverage_gate", self.coverage_gate)

    def decode(self, batch: PointerGeneratorBatch, target_input: Tensor) -> Decoded:
        """Run the network over target inputs [B, K, T]."""
        return self.network(batch.source, batch.lengths, target_input, self.coverage_gate)

    def decoder_step(self, words: Tensor, state: State, memory: State) -> tuple[CopyOutputs, State]:
        """Run one step of the network after the words [B, K]; return what defines the next word, and the new state."""
        # sparse: the gradient of a step has rows for its words alone
        word_inputs = self.network.feed_word(embedding(words, self.network.embedding.weight, sparse=True))  # [B, K, E]
        network_memory = Memory(*(memory[name] for name in Memory._fields))  # `memory` also has tensors for copying
        inputs, attention, _, next_state = self.network.step(
            word_inputs, DecoderState(**state), network_memory, self.coverage_gate
        )
        features, gate = self.network.features(inputs, next_state.hidden, next_state.cell, next_state.context)
        return CopyOutputs(features, attention, gate), next_state._asdict()  # keyed by the fields of `DecoderState`

    def sample_with_log_probs(
        self, batch: PointerGeneratorBatch, options: DecodingOptions
    ) -> tuple[Samples, Tensor | None]:
        """Draw samples as `sample` and return them with `log_probs`, [B, K, n] for n steps, without a second pass.

        The decoder steps that drew them are kept with their gradient, which takes 0.8 of the time of a training step
        with rewards, and a fourth more memory; other models gain nothing. None in place of log P if they cannot be
        kept: for a greedy sample, top-k, top-p, temperature, blocked n-grams, sharded weights, more than 268 million
        probabilities (1 GB in float32), and subclasses with a `sample`, `log_probs` or `generate` of their own.
        """
        num_kept = len(batch.ids) * options.beam_size * options.max_length * len(self.tokenizer)
        has_other_options = options.greedy_first or options.no_repeat_ngram or not options.is_untruncated
        methods = ("sample", "log_probs", "generate")
        is_overridden = any(getattr(type(self), name) is not getattr(PointerGenerator, name) for name in methods)
        if has_other_options or num_kept > KEPT_ELEMENTS or isinstance(self, FSDPModule) or is_overridden:
            return self.sample(batch, options), None
        kept: list[KeptStep] = []
        hypotheses = self.generate(batch, options, kept)
        samples = Samples(hypotheses.tokens[..., : len(kept)], hypotheses.lengths)
        outputs = stack_outputs(kept, len(batch.ids))
        return samples, self.permitted_log_probs(batch, outputs, samples, options, kept)

    def loss_terms(self, batch: PointerGeneratorBatch) -> dict[str, Tensor]:
        """Return `nll` and, with coverage, `coverage`: means over each target, then over documents; log mean p_gen."""
        decoded = self.decode(batch, batch.target_input.unsqueeze(1))  # K = 1; `target_rows`: flat positions of words
        lengths, real = batch.target_lengths, batch.target != PAD                    # [B]; True at tokens, [B, T]
        log_probs = self.target_log_probs(batch, decoded, batch.target.unsqueeze(1), batch.target_rows)  # 0 at padding
        terms = {"nll": -(log_probs.squeeze(1).sum(1) / lengths).mean()}
        if self.has_coverage:
            terms["coverage"] = (decoded.overlap.squeeze(1).masked_fill(~real, 0).sum(1) / lengths).mean()
        if decoded.gate is not None and trainer_of(self) is not None:  # without a trainer, nothing is logged
            p_gen = decoded.gate.detach().squeeze(1).sigmoid().masked_fill(~real, 0)  # [B, T]
            mean_p_gen = (p_gen.sum(1) / lengths).mean()
            if self.training:
                self.step_values["p_gen"] = mean_p_gen  # logged by `training_step`
            else:
                log_mean(self, "val/p_gen", mean_p_gen, batch.batch_size)
        return terms
