"""`Summarizer`: the life that every model of the suite shares, and the records it leaves."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from pytorch_lightning import LightningModule
from torch import Tensor, nn

from datamodules.batch import Batch
from datamodules.documents import CorpusError
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.metrics.rouge import Rouge, rouge_scores

ROUGE_VARIANTS = ("rouge1", "rouge2", "rougeL", "rougeLsum")


@dataclass
class Summary:
    """What a model made of one document.

    Attributes:
        id: the document's.
        sentences: of the summary.
        references: the document's reference summaries, each a list of sentences.
        copied: for every word of the summary whether it was copied; None where a model does not say.
        words: the summary's words that `copied` belongs to.
        scores: measures of this summary, F1 x 100 for ROUGE; empty without references.
        extra: what a model says of it besides, plain values by name, written into the record.
    """

    id: str
    sentences: list[str]
    references: list[list[str]]
    words: list[str] | None = None
    copied: list[bool] | None = None
    scores: dict[str, float] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """A line of predictions.jsonl."""
        row = {"id": self.id, "summary": self.sentences, "references": self.references, "scores": self.scores}
        row |= self.extra
        return row | ({"copied": self.copied, "words": self.words} if self.copied is not None else {})


class Samples(NamedTuple):
    """Generated token ids, what `Generative.log_probs` rescores."""

    tokens: Tensor  # [B, K, T], end symbol included, padded
    lengths: Tensor  # tokens of each, end symbol included, [B, K]


class Generative(Protocol):
    """A model that writes: what self-critical training asks of it.

    Its text (vocabulary or tokenizer) has `end_ids(marks)`, the ids of tokens that end a sentence.
    """

    text: Any

    def sample(self, batch: Batch, options: DecodingOptions) -> Samples:
        """Draws (`options.sample`) or searches K = `options.beam_size` summaries of each document, without gradient, in
        eval mode, from torch's own generator.

        With `options.greedy_first` the first of those drawn is the greedy one. The distribution drawn from is that of
        `log_probs` with the same options.
        """

    def log_probs(self, batch: Batch, samples: Samples, options: DecodingOptions | None = None) -> Tensor:
        """Log-probabilities of given tokens in one teacher-forced pass, [B, K, T], with gradient; 0 behind `lengths`.

        Without options they are the model's own; with options those of the distribution that `sample` draws from,
        which is sharpened by the temperature and renormalised over the tokens that are not forbidden. The end symbol's
        step is included. It works in eval mode too, for any K and T, and logs nothing.
        """

    def texts(self, batch: Batch, samples: Samples) -> list[list[str]]:
        """Text of each sample, K for each document, written as `summarize` writes it; special symbols, and tokens
        behind `lengths`, are left out: with smaller lengths it is the text of a beginning."""

    def source_ids(self, batch: Batch) -> Tensor:
        """The documents as ids that `texts` understands, padded, [B, S]; needed by rewards that read the source."""


Term = Callable[[Any, Batch], Tensor]


def weighted_sum(terms: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    """sum_k weights[k] terms[k]; a term without a weight counts once.

    Raises:
        ValueError: if there is no term.
    """
    if not terms:
        raise ValueError("a loss needs at least one term")
    return sum(weights.get(name, 1.0) * term for name, term in terms.items())


def repeated_share(words: list[str], size: int = 3) -> float:
    """Share of a text's n-grams that stood in it before, in [0, 1]; 0 for a text shorter than n."""
    grams = [tuple(words[i : i + size]) for i in range(len(words) - size + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def log_training(module: LightningModule, name: str, value: Tensor | float, batch: Batch, **options: Any) -> None:
    """Log train/<name>, the mean over the documents that all ranks train on in this step.

    Args:
        module: what is trained.
        name: of the value.
        value: the mean over the documents of this rank's batch.
        batch: the batch; all ranks call this in the same steps.
        options: of `LightningModule.log`.
    """
    module.log(f"train/{name}", value * batch.weight, batch_size=batch.batch_size, sync_dist=True, **options)


class Summarizer(LightningModule, ABC):
    """Base of all summarizers: training by weighted named terms, evaluation by summaries and ROUGE.

    A model gives `loss_terms(batch)`, a mean over the batch's documents for each named term, and `summarize(batch)`.
    The loss is the weighted sum of the terms; callbacks move `loss_weights`, or add terms of their own to `extra_terms`
    and lower `loss_share` for them.

    Args:
        vocab_size: rows of the embedding; the DataModule's text must fit.
        decoding: how summaries are decoded.
        val_summaries: validation documents that are summarized and scored at each validation during training; -1 for
            all. `validate` and `test` score all documents.
    """

    batch_type: ClassVar[type[Batch]] = Batch  # what `loss_terms` and `summarize` read

    def __init__(self, vocab_size: int, decoding: DecodingOptions, val_summaries: int = 256) -> None:
        super().__init__()
        self.vocab_size, self.decoding, self.val_summaries = vocab_size, decoding, val_summaries
        self.loss_weights: dict[str, float] = {}
        self.extra_terms: dict[str, Term] = {}
        self.loss_share = 1.0  # of the model's own terms in training, beside extra terms
        self.text: Any = None
        self.rouge = nn.ModuleDict({stage: Rouge(ROUGE_VARIANTS) for stage in ("val", "test")})
        self._summarized = 0

    # What a paper says -------------------------------------------------------------------------------------------

    @abstractmethod
    def loss_terms(self, batch: Batch) -> dict[str, Tensor]:
        """Named terms of the loss, each a mean over the documents of the batch."""

    @abstractmethod
    def summarize(self, batch: Batch) -> list[Summary]:
        """A summary of each document."""

    # Text --------------------------------------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        """Take the text from the DataModule.

        Raises:
            CorpusError: if it does not fit `vocab_size`, or the DataModule is another paper's.
        """
        data = getattr(self.trainer, "datamodule", None)
        self.check_data(data)
        if data is not None and data.text is not None:
            self.use_text(data.text)

    def check_data(self, data: Any) -> None:
        """Compare the batches that a DataModule makes with those that the model reads.

        A DataModule that does not say what it makes (`batch_type`) is not checked.

        Raises:
            CorpusError: if they differ.
        """
        made = getattr(data, "batch_type", Batch)
        if made is not Batch and not issubclass(made, self.batch_type):
            raise CorpusError(
                f"{type(self).__name__} reads {self.batch_type.__name__}, but {type(data).__name__} makes "
                f"{made.__name__}; give --data the DataModule of the same paper, as in experiments/configs"
            )

    def use_text(self, text: Any) -> None:
        """Takes a vocabulary or tokenizer.

        Raises:
            CorpusError: if it does not fit `vocab_size`.
        """
        if len(text) > self.vocab_size:
            raise CorpusError(
                f"the text has {len(text)} words but the model vocab_size {self.vocab_size}; "
                f"raise --model.vocab_size, or give --data.text the run's own text folder"
            )
        self.text = text

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.text is not None:
            checkpoint["text"] = self.text.state()
        checkpoint["loss_weights"] = dict(self.loss_weights)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Compare text and shapes, and restore what callbacks have switched (loss weights here).

        A run that only starts from the weights of another one (`StartFrom`, which sets `checkpoint["start"]`) has its
        own switches: those of the other run may be closed.

        Raises:
            CorpusError: if the checkpoint does not fit.
        """
        saved = checkpoint.get("text")
        if saved is not None and self.text is not None and saved != self.text.state():
            raise CorpusError(
                "the vocabulary of the data is not the one this checkpoint was trained with; "
                "give --data.text the run's own text folder"
            )
        here, there = self.state_dict(), checkpoint["state_dict"]
        for name in sorted(here.keys() | there.keys()):
            shapes = [list(state[name].shape) if name in state else "absent" for state in (there, here)]
            if shapes[0] != shapes[1]:
                raise CorpusError(
                    f"the checkpoint does not fit the model: {name} is {shapes[0]} there and {shapes[1]} here; "
                    "give the --model arguments that the run's config.yaml has"
                )
        if not checkpoint.get("start"):
            self.loss_weights.update(checkpoint.get("loss_weights", {}))

    # Steps -------------------------------------------------------------------------------------------------------

    def on_fit_start(self) -> None:
        self._seed = torch.initial_seed()

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Draws (dropout, samples) are a function of seed, rank and batch: a resumed run makes those that the
        uninterrupted run makes."""
        drawn = (self._seed, self.trainer.global_rank, self.trainer.fit_loop.total_batch_idx)
        torch.manual_seed(hash(drawn))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the weighted sum of the named terms, times the batch's weight among all ranks.

        Every term is logged as train/<name>, the mean over the documents of all ranks. The sum of the model's own terms
        counts `loss_share`. With a share of 0 they are not computed, nor are extra terms of weight 0.
        """
        own = self.loss_terms(batch) if self.loss_share else {}
        wanted = {name: term for name, term in self.extra_terms.items() if self.loss_weights.get(name, 1.0)}
        extra = {name: term(self, batch) for name, term in wanted.items()}
        shares = ((self.loss_share, own), (1.0, extra))
        loss = sum(share * weighted_sum(terms, self.loss_weights) for share, terms in shares if terms)
        for name, term in {**own, **extra}.items():
            log_training(self, name, term.detach(), batch)
        log_training(self, "loss", loss.detach(), batch, prog_bar=True)
        return loss * batch.weight

    def log_mean(self, name: str, value: Tensor | float, documents: int, **options: Any) -> None:
        """Logs the mean over some documents, which becomes the mean over those of all evaluation batches and ranks."""
        # Lightning divides the documents of all ranks by their number and drops the fraction: here nothing is dropped
        self.log(name, value, batch_size=documents * self.trainer.world_size, sync_dist=True, on_epoch=True, **options)

    def on_validation_epoch_start(self) -> None:
        self._summarized = 0

    def validation_step(self, batch: Batch, batch_idx: int) -> list[Summary]:
        """Loss terms, and summaries of the first documents (of all, outside of training)."""
        terms = self.loss_terms(batch)
        loss = weighted_sum(terms, self.loss_weights)
        for name, term in {**terms, "loss": loss}.items():
            self.log_mean(f"val/{name}", term, batch.batch_size, prog_bar=name == "loss")
        world = self.trainer.world_size
        fitting = self.trainer.state.fn == "fit"
        if fitting and 0 <= self.val_summaries <= self._summarized * world:
            return []
        self._summarized += batch.batch_size
        return self._score(batch, "val")

    def test_step(self, batch: Batch, batch_idx: int) -> list[Summary]:
        """Summaries and their scores."""
        return self._score(batch, "test")

    def predict_step(self, batch: Batch, batch_idx: int) -> list[Summary]:
        """Summaries, scored where there are references."""
        return self.scored(self.summarize(batch))

    def scored(self, summaries: list[Summary]) -> list[Summary]:
        """Fills in ROUGE F1 x 100 of every summary that has references; the best reference counts."""
        for summary in summaries:
            if any(any(sentence.strip() for sentence in reference) for reference in summary.references):
                scores = rouge_scores(summary.sentences, summary.references, ROUGE_VARIANTS)
                summary.scores = {name: 100 * score.fmeasure for name, score in scores.items()}
        return summaries

    def _score(self, batch: Batch, stage: str) -> list[Summary]:
        """Summarizes, scores, and logs means over the documents with references."""
        summaries = self.scored(self.summarize(batch))
        judged = [summary for summary in summaries if summary.scores]
        if judged:
            self.rouge[stage].update([s.sentences for s in judged], [s.references for s in judged])
        words = [" ".join(summary.sentences).split() for summary in summaries]
        means = {
            "length": sum(map(len, words)) / len(words),
            "repeated_trigrams": sum(map(repeated_share, words)) / len(words),
        }
        for name, value in means.items():
            self.log_mean(f"{stage}/{name}", value, len(summaries))
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
        """Looks for references before anything is decoded.

        Raises:
            CorpusError: if no document has one.
        """
        data = getattr(self.trainer, "datamodule", None)
        if data is None or any(data.features("test")["references"]):
            return
        rows = data.features("test")
        raise CorpusError(
            f"{data.corpus.title('test')}: none of its {len(rows):,} documents ({rows[0]['id']!r} is the first) has a "
            "reference to score against; `precis predict` writes summaries alone"
        )

    def on_test_epoch_end(self) -> None:
        self._log_rouge("test")


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """A module in eval mode and no gradient; the mode before is restored."""
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        module.train(training)
