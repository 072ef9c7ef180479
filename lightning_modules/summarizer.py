"""`Summarizer`, the base class of all models: training and evaluation loop, logging, and records of summaries."""

import inspect
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
from lightning_modules.metrics.rouge_metric import Rouge
from lightning_modules.sharding import gathered, shard
from lightning_modules.stored import mismatched_shapes
from lightning_modules.summary import ROUGE_VARIANTS, Summary

SCORES = ("loss", *ROUGE_VARIANTS, "length", "repeated_trigrams")  # what a validation of every model logs


class Samples(NamedTuple):
    """Generated token ids that `Generative.log_probs` rescores."""

    tokens: Tensor  # ids of K summaries of each document, end symbol included, padded, [B, K, T]
    lengths: Tensor  # tokens of each summary, end symbol included, [B, K]


class Generative(Protocol):
    """Generative model, as self-critical training needs it.

    Its tokenizer has a method `end_ids(marks)`, which returns the ids of tokens that end a sentence, for marks such as
    ".", "!", "?", and `stop`, the id of the end symbol; `language` is the code of the language of its texts. A training
    step logs `step_values`, by name.
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

        Without options they are log-probabilities of the model, with options of the distribution that `sample` draws
        from: with temperature, and renormalized over the tokens that are not forbidden. The step of the end symbol is
        included; values after `lengths` are 0. The method works in train and eval mode for any K, T, and logs nothing.
        """

    def texts(self, batch: Batch, samples: Samples) -> list[list[str]]:
        """Return the text of each sample, K for each document, formatted as by `summarize`.

        Special symbols and tokens after `lengths` are left out, so smaller lengths give the text of a prefix.
        """

    def source_ids(self, batch: Batch) -> Tensor:
        """Return the documents as padded ids that `texts` can decode, [B, S], for rewards that read the source."""


def weighted_sum(terms: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    """Return sum_k weights[k] terms[k]; a term without a weight has weight 1. `ValueError` if there are no terms."""
    if not terms:
        raise ValueError("a loss needs at least one term")
    return sum(weights.get(name, 1.0) * term for name, term in terms.items())


class Summarizer(LightningModule, ABC):
    """Base class of all models: training with weighted named loss terms, evaluation with summaries and ROUGE.

    A model implements `loss_terms(batch)`, which returns named terms averaged over the batch's documents, and
    `summarize(batch)`. The loss is the weighted sum of the terms. Callbacks change `loss_weights`, or add terms to
    `extra_terms` and lower `model_loss_weight`.

    Args:
        vocab_size: number of embeddings; the vocabulary of the DataModule must not be larger.
        decoding: decoding options.
        val_summaries: number of validation documents summarized and scored at each validation during training; -1 for
            all. `validate` and `test` score all documents.
    """

    batch_type: ClassVar[type[Batch]] = Batch  # argument of `loss_terms` and `summarize`
    # what a validation logs besides `SCORES`: terms of the loss; if it is empty, monitors are not checked before a run
    validation_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, vocab_size: int, decoding: DecodingOptions | None, val_summaries: int = 256) -> None:
        super().__init__()
        if decoding is None:  # null in a config: the default of the class
            default = getattr(inspect.signature(type(self)).parameters.get("decoding"), "default", None)
            decoding = default if isinstance(default, DecodingOptions) else DecodingOptions()
        self.vocab_size = vocab_size
        self.decoding = decoding
        self.val_summaries = val_summaries
        self.loss_weights: dict[str, float] = {}  # by the names of loss terms; 1 for a term without an entry
        self.step_values: dict[str, Tensor | float] = {}  # what a training step logs besides loss terms, by name
        self.extra_terms: dict[str, Callable[[Any, Batch], Tensor]] = {}  # further loss terms, of model and batch
        self.model_loss_weight = 1.0  # weight of the sum of `loss_terms` in training, beside `extra_terms`
        self.tokenizer: Any = None  # set from the DataModule in `setup`
        self.language = ""  # none yet, so that the next line creates the ROUGE metrics
        self.set_language("en")
        self._summarized = 0  # documents that this rank has summarized in the current validation

    @abstractmethod
    def loss_terms(self, batch: Batch) -> dict[str, Tensor]:
        """Return named terms of the loss, each a mean over the documents of the batch."""

    @abstractmethod
    def summarize(self, batch: Batch) -> list[Summary]:
        """Return a summary of each document."""

    def setup(self, stage: str) -> None:
        """Take the language and the vocabulary or tokenizer from the DataModule, and check that they fit the model."""
        datamodule = getattr(self.trainer, "datamodule", None)  # absent if the trainer reads plain data loaders
        self.check_data(datamodule)
        if language := getattr(datamodule, "language", None):
            self.set_language(language.code)
        if datamodule is not None and datamodule.tokenizer is not None:
            self.set_tokenizer(datamodule.tokenizer)  # a `UserError` if it is larger than `vocab_size`

    def layers_to_shard(self) -> list[nn.Module]:
        """Return the modules that FSDP2 shards one by one; training must call them, as a call gathers the weights.

        They are the items of `nn.ModuleList`s whose class is named ...Layer or ...Block, those of inner lists first.
        """
        lists = [part for part in self.modules() if isinstance(part, nn.ModuleList)]
        layers = [layer for module_list in reversed(lists) for layer in module_list]
        return [layer for layer in layers if type(layer).__name__.endswith(("Layer", "Block"))]

    def configure_model(self) -> None:
        """Shard the weights in place if the strategy shards (`--trainer.strategy fsdp2`)."""
        is_sharded = isinstance(self, FSDPModule)  # Lightning calls this hook in each of `fit`, `validate` and `test`
        if self.device_mesh is not None and not is_sharded:
            shard(self, self.layers_to_shard(), self.device_mesh["data_parallel"])

    def check_data(self, data: Any) -> None:
        """Raise a `UserError` if a DataModule makes batches that this model does not read."""
        data_type = getattr(data, "batch_type", Batch)  # None and DataModules of others have no type: they pass
        if data_type is not Batch and not issubclass(data_type, self.batch_type):
            problem = f"reads {self.batch_type.__name__}, but {type(data).__name__} makes {data_type.__name__}"
            remedy = "give --data the DataModule of the same paper, as in experiments/configs"
            raise UserError(f"{type(self).__name__} {problem}; {remedy}")

    def set_language(self, code: str) -> None:
        """Set the language in which summaries are split into sentences and scored, with new ROUGE metrics for it."""
        if code == self.language:
            return  # so as to keep the metrics, which may hold scores
        self.language = code
        metrics = {stage: Rouge(ROUGE_VARIANTS, language=code) for stage in ("val", "test")}
        self.rouge = nn.ModuleDict(metrics)

    def set_tokenizer(self, tokenizer: Any) -> None:
        """Set the vocabulary or tokenizer; a `UserError` if it is larger than `vocab_size`."""
        if len(tokenizer) > self.vocab_size:
            problem = f"the tokenizer has {len(tokenizer)} tokens but model.vocab_size is {self.vocab_size}"
            remedy = "raise --model.vocab_size, or give --data.tokenizer_dir the `text` folder of the run"
            raise UserError(f"{problem}; {remedy}")
        self.tokenizer = tokenizer

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the state of the vocabulary or tokenizer, and the loss weights, which `on_load_checkpoint` reads."""
        if self.tokenizer is not None:
            checkpoint["text"] = self.tokenizer.state()
        checkpoint["loss_weights"] = dict(self.loss_weights)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Check vocabulary and shapes, and restore the loss weights that callbacks may have changed.

        A new run that starts from the weights of another run (`StartFrom`, which sets `checkpoint["start"]`) keeps the
        loss weights of its config, because callbacks of the other run may have set them to 0.
        """
        saved_vocabulary = checkpoint.get("text")  # the state of the tokenizer
        if saved_vocabulary is not None and self.tokenizer is not None and saved_vocabulary != self.tokenizer.state():
            problem = "the vocabulary of the data is not the one this checkpoint was trained with"
            raise UserError(f"{problem}; give --data.tokenizer_dir the `text` folder of the run")
        for name, (saved_shape, shape) in mismatched_shapes(checkpoint["state_dict"], self.state_dict()).items():
            problem = f"the checkpoint does not fit the model: {name} is {saved_shape} there and {shape} here"
            raise UserError(f"{problem}; give the --model arguments that the run's config.yaml has")
        if not checkpoint.get("start"):
            self.loss_weights.update(checkpoint.get("loss_weights", {}))

    def export(self, folder: Path) -> dict[str, str]:
        """Write pretrained parts in the format of `transformers`, with the tokenizer, to the folder of `precis export`.

        Returns:
            For each argument that named a pretrained model, such as `encoder.checkpoint`, the path of the written part
            relative to `folder`. In the exported config this path replaces the value of the argument, and of the
            argument `checkpoint` of the DataModule. Empty without pretrained parts.
        """
        return {}

    def frozen_weights(self) -> set[str]:
        """Return the names of weights that `precis export --compact` omits because a public checkpoint has them."""
        return set()

    def on_fit_start(self) -> None:
        self._seed = torch.initial_seed()  # the run's seed; `on_train_batch_start` replaces torch's seed

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Seed torch from the run's seed, rank and batch number, so that a resumed run draws the same samples."""
        # the hash of a tuple of integers, unlike of strings, is the same in every process
        torch.manual_seed(hash((self._seed, self.trainer.global_rank, self.trainer.fit_loop.total_batch_idx)))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the weighted sum of the named terms, times `batch.loss_weight`, and log the terms.

        Each term is logged as train/<name>, the mean over the documents of all ranks, and so is each of `step_values`,
        which `SelfCritical`, for example, fills. The sum of the model's terms is multiplied by `model_loss_weight`.
        If this is 0, the model's terms are not computed, and neither are extra terms whose weight is 0.
        """
        self.step_values = {}
        loss: Any = 0.0
        terms: dict[str, Tensor] = {}
        if self.model_loss_weight:
            terms = self.loss_terms(batch)
            loss = loss + self.model_loss_weight * weighted_sum(terms, self.loss_weights)
        extra = {name: term(self, batch) for name, term in self.extra_terms.items() if self.loss_weights.get(name, 1.0)}
        if extra:
            loss = loss + weighted_sum(extra, self.loss_weights)
        values = {name: value.detach() for name, value in {**terms, **extra, "loss": loss}.items()}
        log_training(self, self.step_values | values, batch)
        return loss * batch.loss_weight  # so that all documents of an optimizer step have equal weight

    def on_validation_epoch_start(self) -> None:
        self._summarized = 0

    def validation_step(self, batch: Batch, batch_idx: int) -> list[Summary]:
        """Log loss terms; return scored summaries of the first `val_summaries` documents (of all outside training)."""
        terms = self.loss_terms(batch)
        loss = weighted_sum(terms, self.loss_weights)
        for name, term in {**terms, "loss": loss}.items():
            log_mean(self, f"val/{name}", term, batch.batch_size, prog_bar=name == "loss")
        is_fitting = self.trainer.state.fn == "fit"
        summarized = self._summarized * self.trainer.world_size  # all ranks have summarized equally many documents
        if is_fitting and 0 <= self.val_summaries <= summarized:  # a negative `val_summaries` stands for all
            return []
        self._summarized += batch.batch_size  # 0 again at the start of each validation
        return self._score(batch, "val")

    def test_step(self, batch: Batch, batch_idx: int) -> list[Summary]:
        """Summarize and score all documents."""
        return self._score(batch, "test")

    def predict_step(self, batch: Batch, batch_idx: int) -> list[Summary]:
        """Summarize; documents with references get scores, which are not logged."""
        return self.scored(self.summarize(batch))

    def scored(self, summaries: list[Summary]) -> list[Summary]:
        """Set `scores` of each summary with a nonblank reference: ROUGE F1 x 100 against the best reference."""
        for summary in summaries:
            summary.score(self.language)
        return summaries

    def _score(self, batch: Batch, stage: str) -> list[Summary]:
        """Summarize and score a batch; log length and repeated trigrams, and update ROUGE, logged after the epoch."""
        summaries = self.scored(self.summarize(batch))
        scored = [summary for summary in summaries if summary.scores]  # those of documents with a reference
        if scored:
            predictions = [summary.sentences for summary in scored]
            self.rouge[stage].update(predictions, [summary.references for summary in scored])
        words = [length_words(*summary.sentences) for summary in summaries]  # also in scripts without spaces
        mean_length = sum(map(len, words)) / len(words)
        log_mean(self, f"{stage}/length", mean_length, len(summaries))
        mean_repeated = sum(map(repeated_ngrams, words)) / len(words)
        log_mean(self, f"{stage}/repeated_trigrams", mean_repeated, len(summaries))
        return summaries

    def _log_rouge(self, stage: str) -> None:
        """Log ROUGE over all ranks at the end of an epoch, unless no document had a reference."""
        metric = self.rouge[stage]
        # `compute` communicates, so all ranks call it if one of them has a score, else none
        if self.trainer.strategy.reduce_boolean_decision(metric.update_count > 0, all=False):
            for name, value in metric.compute().items():
                self.log(f"{stage}/{name}", value, prog_bar=name == "rouge1")
        metric.reset()

    def on_validation_epoch_end(self) -> None:
        self._log_rouge("val")

    def on_test_start(self) -> None:
        """Raise a `UserError` before any decoding if no document of the test split has a reference."""
        datamodule = getattr(self.trainer, "datamodule", None)  # absent if the trainer reads plain data loaders
        if datamodule is None:
            return
        documents = datamodule.features("test")
        if not any(documents["references"]):  # a list for each document, empty without references
            raise UserError(
                f"{datamodule.corpus.title('test')}: none of its {counted(len(documents), 'document')} "
                f"({documents[0]['id']!r} is the first) has a reference to score against; `precis predict` writes "
                "summaries alone"
            )

    def on_test_epoch_end(self) -> None:
        self._log_rouge("test")


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Set a module to eval mode within a context, without gradients, and gather the weights of a sharded model."""
    was_training = module.training
    module.eval()
    try:
        # outside of training, the strategy has gathered the weights already
        with torch.no_grad(), gathered(module) if was_training else nullcontext():
            yield
    finally:
        module.train(was_training)  # modules with a frozen encoder override `train`
