"""`Summarizer`, the base class of all models: training and evaluation loop, logging, and records of summaries."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from pytorch_lightning import LightningModule
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from datamodules.batch import Batch
from datamodules.documents import UserError
from datamodules.text.language import length_words
from datamodules.text.lines import counted
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.logged_values import log_mean, log_training
from lightning_modules.metrics.novelty import repeated_ngrams
from lightning_modules.metrics.rouge import rouge_scores
from lightning_modules.metrics.rouge_metric import Rouge
from lightning_modules.sharding import find_layers, gathered, shard
from lightning_modules.summary import Summary

ROUGE_VARIANTS = ("rouge1", "rouge2", "rougeL", "rougeLsum")
SCORES = ("loss", *ROUGE_VARIANTS, "length", "repeated_trigrams")  # what a validation of every model logs


class Samples(NamedTuple):
    """Generated token ids that `Generative.log_probs` rescores."""

    tokens: Tensor  # [B, K, T], end symbol included, padded
    lengths: Tensor  # tokens of each, end symbol included, [B, K]


class Generative(Protocol):
    """Generative model, as self-critical training needs it.

    Its tokenizer has a method `end_ids(marks)`, which returns the ids of tokens that end a sentence, and `stop`, the id
    of the end symbol; `language` is the code of the language of its texts. A training step logs `step_values`, see
    `Summarizer`.
    """

    tokenizer: Any
    language: str
    step_values: dict[str, Tensor | float]

    def sample(self, batch: Batch, options: DecodingOptions) -> Samples:
        """Generate K = `options.beam_size` summaries of each document, without gradient and in eval mode.

        With `options.sample` they are sampled with torch's default generator, from the distribution of `log_probs` with
        the same options; otherwise they come from beam search. With `options.greedy_first` the first sample is greedy.
        """

    def log_probs(self, batch: Batch, samples: Samples, options: DecodingOptions | None = None) -> Tensor:
        """Return the log-probabilities of samples in one teacher-forced pass, [B, K, T], with gradient.

        Without options they are those of the model. With options they are those of the distribution that `sample` draws
        from: with temperature, and renormalized over the tokens that are not forbidden. The step of the end symbol is
        included; values after `lengths` are 0. It works in train and eval mode for any K and T, and logs nothing.
        """

    def texts(self, batch: Batch, samples: Samples) -> list[list[str]]:
        """Return the text of each sample, K for each document, formatted as by `summarize`.

        Special symbols and tokens after `lengths` are left out, so smaller lengths give the text of a prefix.
        """

    def source_ids(self, batch: Batch) -> Tensor:
        """Return the documents as ids that `texts` can decode, padded, [B, S]; for rewards that read the source."""


Term = Callable[[Any, Batch], Tensor]


def weighted_sum(terms: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    """Return sum_k weights[k] terms[k], by default with weight 1; a `ValueError` if there are no terms."""
    if not terms:
        raise ValueError("a loss needs at least one term")
    return sum(weights.get(name, 1.0) * term for name, term in terms.items())


class Summarizer(LightningModule, ABC):
    """Base class of all models: training with weighted named loss terms, evaluation with summaries and ROUGE.

    A model implements `loss_terms(batch)`, which returns named terms averaged over the batch's documents, and
    `summarize(batch)`. The loss is the weighted sum of the terms. Callbacks change `loss_weights`, or add terms to
    `extra_terms` and lower `model_loss_weight`.

    Args:
        vocab_size: rows of the embedding; the vocabulary of the DataModule must not be larger.
        decoding: decoding options.
        val_summaries: number of validation documents summarized and scored at each validation during training; -1 for
            all. `validate` and `test` score all documents.
    """

    batch_type: ClassVar[type[Batch]] = Batch  # argument of `loss_terms` and `summarize`
    # what a validation logs besides `SCORES`: terms of the loss; if it is empty, monitors are not checked before a run
    validation_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, vocab_size: int, decoding: DecodingOptions, val_summaries: int = 256) -> None:
        super().__init__()
        self.vocab_size, self.decoding, self.val_summaries = vocab_size, decoding, val_summaries
        self.loss_weights: dict[str, float] = {}
        self.step_values: dict[str, Tensor | float] = {}  # what a training step logs besides its loss terms
        self.extra_terms: dict[str, Term] = {}
        self.model_loss_weight = 1.0  # weight of the sum of `loss_terms` in training, beside `extra_terms`
        self.tokenizer: Any = None
        self.language = ""
        self.set_language("en")
        self._summarized = 0

    # Defined by each paper ---------------------------------------------------------------------------------------

    @abstractmethod
    def loss_terms(self, batch: Batch) -> dict[str, Tensor]:
        """Return named terms of the loss, each a mean over the documents of the batch."""

    @abstractmethod
    def summarize(self, batch: Batch) -> list[Summary]:
        """Return a summary of each document."""

    # Vocabulary and checkpoints ----------------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        """Take the language and the vocabulary or tokenizer from the DataModule, which must fit the model."""
        data = getattr(self.trainer, "datamodule", None)
        self.check_data(data)
        if language := getattr(data, "language", None):
            self.set_language(language.code)
        if data is not None and data.tokenizer is not None:
            self.set_tokenizer(data.tokenizer)

    def layers_to_shard(self) -> list[nn.Module]:
        """Return the modules that are sharded by themselves; in training they are only used by calling them."""
        return find_layers(self)

    def configure_model(self) -> None:
        """Shard the weights where the strategy does (`--trainer.strategy fsdp2`)."""
        if self.device_mesh is not None and not isinstance(self, FSDPModule):
            shard(self, self.layers_to_shard(), self.device_mesh["data_parallel"])

    def check_data(self, data: Any) -> None:
        """Check that a DataModule, if it has a `batch_type`, produces the batches of this model.

        Raises:
            UserError: if the types differ.
        """
        data_type = getattr(data, "batch_type", Batch)
        if data_type is not Batch and not issubclass(data_type, self.batch_type):
            raise UserError(
                f"{type(self).__name__} reads {self.batch_type.__name__}, but {type(data).__name__} makes "
                f"{data_type.__name__}; give --data the DataModule of the same paper, as in experiments/configs"
            )

    def set_language(self, code: str) -> None:
        """Set the language of the summaries, in which they are split into sentences and scored."""
        if code == self.language:
            return
        self.language = code
        metrics = {stage: Rouge(ROUGE_VARIANTS, language=code) for stage in ("val", "test")}
        self.rouge = nn.ModuleDict(metrics)

    def set_tokenizer(self, tokenizer: Any) -> None:
        """Set the vocabulary or tokenizer; a `UserError` if it is larger than `vocab_size`."""
        if len(tokenizer) > self.vocab_size:
            raise UserError(
                f"the tokenizer has {len(tokenizer)} tokens but model.vocab_size is {self.vocab_size}; "
                "raise --model.vocab_size, or give --data.tokenizer_dir the `text` folder of the run"
            )
        self.tokenizer = tokenizer

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.tokenizer is not None:
            checkpoint["text"] = self.tokenizer.state()
        checkpoint["loss_weights"] = dict(self.loss_weights)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Check vocabulary and shapes, and restore the loss weights that callbacks may have changed.

        A run that only starts from the weights of another run (`StartFrom`, which sets `checkpoint["start"]`) keeps its
        own loss weights, because callbacks of the other run may have set them to 0.
        """
        saved = checkpoint.get("text")
        if saved is not None and self.tokenizer is not None and saved != self.tokenizer.state():
            raise UserError(
                "the vocabulary of the data is not the one this checkpoint was trained with; "
                "give --data.tokenizer_dir the `text` folder of the run"
            )
        model_state, saved_state = self.state_dict(), checkpoint["state_dict"]
        for name in sorted(model_state.keys() | saved_state.keys()):
            saved_shape, shape = (
                list(state[name].shape) if name in state else "absent" for state in (saved_state, model_state)
            )
            if saved_shape != shape:
                raise UserError(
                    f"the checkpoint does not fit the model: {name} is {saved_shape} there and {shape} here; "
                    "give the --model arguments that the run's config.yaml has"
                )
        if not checkpoint.get("start"):
            self.loss_weights.update(checkpoint.get("loss_weights", {}))

    def export(self, folder: Path) -> dict[str, str]:
        """Write the parts that `transformers` loads, with a tokenizer, to the folder of an exported model.

        Returns:
            For each argument that named a pretrained model (`encoder.checkpoint`; the data's has the name after the
            dot), the path below `folder` that takes its place; empty for a model without pretrained parts.

        Raises:
            ValueError: if the model has such parts in a form that cannot be written.
        """
        return {}

    def frozen_weights(self) -> set[str]:
        """Return the names of weights that a compact export leaves out, because the model loads them by name."""
        return set()

    # Steps -------------------------------------------------------------------------------------------------------

    def on_fit_start(self) -> None:
        self._seed = torch.initial_seed()

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Seed the generator from seed, rank and batch number, so that a resumed run draws the same samples."""
        torch.manual_seed(hash((self._seed, self.trainer.global_rank, self.trainer.fit_loop.total_batch_idx)))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the weighted sum of the named terms, times the batch's weight among ranks and accumulated batches.

        Each term, and each of `step_values`, which terms may add to, is logged as train/<name>, the mean over the
        documents of all ranks. The sum of the model's terms is multiplied by `model_loss_weight`. Terms of weight 0 are
        not computed: none of the model's terms if `model_loss_weight` is 0, and no extra term whose loss weight is 0.
        """
        self.step_values = {}
        terms = self.loss_terms(batch) if self.model_loss_weight else {}
        extra = {}
        for name, term in self.extra_terms.items():
            if self.loss_weights.get(name, 1.0):
                extra[name] = term(self, batch)
        groups = ((self.model_loss_weight, terms), (1.0, extra))
        loss = sum(weight * weighted_sum(group, self.loss_weights) for weight, group in groups if group)
        values = {name: value.detach() for name, value in {**terms, **extra, "loss": loss}.items()}
        log_training(self, self.step_values | values, batch)
        return loss * batch.loss_weight

    def on_validation_epoch_start(self) -> None:
        self._summarized = 0

    def validation_step(self, batch: Batch, batch_idx: int) -> list[Summary]:
        """Log the loss terms, and summarize the first `val_summaries` documents (all of them outside training)."""
        terms = self.loss_terms(batch)
        loss = weighted_sum(terms, self.loss_weights)
        for name, term in {**terms, "loss": loss}.items():
            log_mean(self, f"val/{name}", term, batch.batch_size, prog_bar=name == "loss")
        world = self.trainer.world_size
        fitting = self.trainer.state.fn == "fit"
        if fitting and 0 <= self.val_summaries <= self._summarized * world:
            return []
        self._summarized += batch.batch_size
        return self._score(batch, "val")

    def test_step(self, batch: Batch, batch_idx: int) -> list[Summary]:
        """Summarize and score."""
        return self._score(batch, "test")

    def predict_step(self, batch: Batch, batch_idx: int) -> list[Summary]:
        """Summarize; score documents with references."""
        return self.scored(self.summarize(batch))

    def scored(self, summaries: list[Summary]) -> list[Summary]:
        """Set ROUGE F1 x 100 of each summary with references; the best reference counts."""
        for summary in summaries:
            sentences = [sentence for reference in summary.references for sentence in reference]
            if any(sentence.strip() for sentence in sentences):
                scores = rouge_scores(summary.sentences, summary.references, ROUGE_VARIANTS, language=self.language)
                summary.scores = {name: 100 * score.fmeasure for name, score in scores.items()}
        return summaries

    def _score(self, batch: Batch, stage: str) -> list[Summary]:
        """Summarize and score; log ROUGE over documents with references, length and repetition over all."""
        summaries = self.scored(self.summarize(batch))
        scored = [summary for summary in summaries if summary.scores]
        if scored:
            self.rouge[stage].update([s.sentences for s in scored], [s.references for s in scored])
        words = [length_words(summary.text) for summary in summaries]
        means = {
            "length": sum(map(len, words)) / len(words),
            "repeated_trigrams": sum(map(repeated_ngrams, words)) / len(words),
        }
        for name, value in means.items():
            log_mean(self, f"{stage}/{name}", value, len(summaries))
        return summaries

    def _log_rouge(self, stage: str) -> None:
        metric = self.rouge[stage]
        if self.trainer.strategy.reduce_boolean_decision(metric.update_count > 0, all=False):
            for name, value in metric.compute().items():
                self.log(f"{stage}/{name}", value, prog_bar=name == "rouge1", rank_zero_only=False)
        metric.reset()

    def on_validation_epoch_end(self) -> None:
        self._log_rouge("val")

    def on_test_start(self) -> None:
        """Check that some document has a reference before anything is decoded."""
        data = getattr(self.trainer, "datamodule", None)
        if data is None or any(data.features("test")["references"]):
            return
        rows = data.features("test")
        raise UserError(
            f"{data.corpus.title('test')}: none of its {counted(len(rows), 'document')} "
            f"({rows[0]['id']!r} is the first) has a reference to score against; `precis predict` writes summaries "
            "alone"
        )

    def on_test_epoch_end(self) -> None:
        self._log_rouge("test")


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Set a module to eval mode, with whole weights and without gradients, within a context."""
    training = module.training
    module.eval()
    try:
        # outside of training, the strategy has gathered the weights
        with torch.no_grad(), gathered(module) if training else nullcontext():
            yield
    finally:
        module.train(training)
