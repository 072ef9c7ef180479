"""Rewards by pretrained models: BERTScore, SummaC, and classifiers of consistency; loaded when they are first used."""

from functools import cached_property
from pathlib import Path
from typing import Any

from datamodules.text.language import language_of
from lightning_modules.metrics.pair_classifier import ConsistencyModel
from lightning_modules.metrics.reference_scores import bert_scorer, best_bert_scores
from lightning_modules.metrics.rewards import Reward, RewardInputs
from lightning_modules.metrics.summac import EntailmentModel, SummaCConv, summac_scores


class ModelReward(Reward):
    """Base class of rewards by a Hugging Face model.

    Args:
        model: folder, or name on the Hugging Face hub, which is downloaded.
        batch_size: number of texts or pairs of texts that the model reads at once.
        device: device of the model: cpu, cuda, ..., or "auto" for a GPU if available.
    """

    def __init__(self, model: str, batch_size: int = 64, device: str = "auto") -> None:
        self.model = model
        self.batch_size = batch_size
        self.device = device


class BertScoreReward(ModelReward):
    """BERTScore F1 in [0, 1] with the best reference; 0 without a reference or for an empty text.

    Args:
        model, batch_size, device: see `ModelReward`.
        layer: hidden layer of the model; None for the authors' choice, or the last layer of unlisted models.
    """

    name = "bertscore"

    def __init__(self, model: str, layer: int | None = None, batch_size: int = 64, device: str = "auto") -> None:
        super().__init__(model, batch_size, device)
        self.layer = layer

    @cached_property
    def loaded(self) -> Any:
        return bert_scorer(self.model, self.layer, self.batch_size, self.device)

    def __call__(self, inputs: RewardInputs) -> list[float]:
        return best_bert_scores(self.loaded, inputs.texts, inputs.references)


class SummaCReward(ModelReward):
    """SummaC of a text and its document: ZS in [-1, 1], or Conv in [0, 1] if `conv` is given; 0 for an empty text.

    Args:
        model, batch_size, device: see `ModelReward`; a model of natural language inference (NLI).
        conv: file with the weights of SummaC-Conv; None for SummaC-ZS, which has none.
    """

    name = "summac"
    reads_source = True

    def __init__(self, model: str, conv: Path | None = None, batch_size: int = 64, device: str = "auto") -> None:
        super().__init__(model, batch_size, device)
        self.conv = conv

    @cached_property
    def loaded(self) -> tuple[EntailmentModel, SummaCConv | None]:
        entailment = EntailmentModel(self.model, self.batch_size, self.device)
        return entailment, None if self.conv is None else SummaCConv.load(self.conv)

    def __call__(self, inputs: RewardInputs) -> list[float]:
        return summac_scores(*self.loaded, *_sentences(inputs))


class ConsistencyReward(ModelReward):
    """Mean probability that the document supports a sentence of the text, in [0, 1], see `ConsistencyModel`.

    Args:
        model, batch_size, device: see `ModelReward`; a classifier that checks a claim against a source, as MiniCheck.
    """

    name = "consistency"
    reads_source = True

    @cached_property
    def loaded(self) -> ConsistencyModel:
        return ConsistencyModel(self.model, self.batch_size, self.device)

    def __call__(self, inputs: RewardInputs) -> list[float]:
        return self.loaded.scores(*_sentences(inputs))


def _sentences(inputs: RewardInputs) -> tuple[list[list[str]], list[list[str]]]:
    """Return the sentences of each text, and the sentences of each text's document."""
    split_sentences = language_of(inputs.language).split_sentences
    by_source = {source: split_sentences(source) for source in set(inputs.sources)}  # once, as texts share documents
    return [split_sentences(text) for text in inputs.texts], [by_source[source] for source in inputs.sources]
