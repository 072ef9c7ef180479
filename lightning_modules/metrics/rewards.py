"""Rewards of generated texts for self-critical training, computed for whole batches."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from datamodules.text.language import length_words
from datamodules.text.rouge_counts import Score, lcs_length, position_masks, score_of
from datamodules.text.rouge_words import vocabulary, warn_without_words
from lightning_modules.metrics.novelty import novelty, repetition
from lightning_modules.metrics.rouge import rouge_scores

_WORD = re.compile(r"\w+(?:[.,:]\d+)*")  # a number keeps its separators: 1,000.5 and 12:30 are one word


@dataclass
class RewardInputs:
    """Input of rewards: N generated texts; the texts of one document are consecutive."""

    ids: Sequence[str]  # id of the document of each text
    texts: Sequence[str]  # generated texts
    references: Sequence[Sequence[str]]  # references of the document of each text
    sources: Sequence[str] = ()  # text of the document of each text; empty if no reward needs it
    language: str = "en"  # code of the language of the texts


class Reward(ABC):
    """Base class of rewards; higher is better."""

    reads_source = False  # whether the reward needs the document, besides the references

    @property
    def name(self) -> str:
        """Name under which a `Mixture` logs the reward; by default the name of the class."""
        return type(self).__name__

    @abstractmethod
    def __call__(self, inputs: RewardInputs) -> list[float]:
        """Return the reward of each text, N finite numbers."""


class RougeReward(Reward):
    """ROUGE F1 in [0, 1] with the best reference; one without words counts 0, with a warning unless it is blank.

    Args:
        variant: "rougeL", "rouge1", "rouge2", ...
        stem: as in `rouge_scores`. By default ROUGE-L equals rougeL / 100 in validation.

    Raises:
        ValueError: for an unknown variant or stemmer.
    """

    def __init__(self, variant: str = "rougeL", stem: bool = True) -> None:
        if variant == "rougeLsum":
            raise ValueError("RougeReward: rougeLsum needs sentences, but rewards get whole texts; use rougeL")
        rouge_scores(["a"], [["a"]], (variant,), stem)  # raises an error for an unknown variant or stemmer
        self.variant, self.stem = variant, stem

    @property
    def name(self) -> str:
        return self.variant

    def __call__(self, inputs: RewardInputs) -> list[float]:
        split_words = vocabulary(self.stem, inputs.language).split
        has_words: dict[str, bool] = {}  # by reference, since the texts of one document share their references
        text_indices, hypotheses, references = [], [], []  # all pairs of a text and a reference with words
        for index, (text, of_document) in enumerate(zip(inputs.texts, inputs.references)):
            for reference in of_document:
                if reference not in has_words:
                    has_words[reference] = bool(split_words(reference))
                    if reference.strip() and not has_words[reference]:  # punctuation, or another language
                        warn_without_words(inputs.language)
                if has_words[reference]:
                    text_indices.append(index)
                    hypotheses.append(text)
                    references.append(reference)
        rewards = [0.0] * len(inputs.texts)
        for index, score in zip(text_indices, self._scores(hypotheses, references, inputs.language)):
            rewards[index] = max(rewards[index], score)  # the best reference counts
        return rewards

    def _scores(self, hypotheses: list[str], references: list[str], language: str) -> list[float]:
        """Return the F1 of each pair of a hypothesis and a reference, in [0, 1]."""
        if self.variant == "rougeL":  # a faster computation with the same result
            return [score.fmeasure for score in rouge_l_texts(hypotheses, references, self.stem, language)]
        options = {"variants": (self.variant,), "stem": self.stem, "language": language}
        pairs = zip(hypotheses, references)
        return [rouge_scores([text], [[reference]], **options)[self.variant].fmeasure for text, reference in pairs]


class Repetition(Reward):
    """Share of a text's n-grams that it has had before, in [0, 1); 0 for a text shorter than n. Weigh it negatively.

    Args:
        order: n.
    """

    def __init__(self, order: int = 3) -> None:
        if order < 1:
            raise ValueError(f"Repetition needs an order of at least 1, got {order}")
        self.order = order

    @property
    def name(self) -> str:
        return f"repetition_{self.order}"

    def __call__(self, inputs: RewardInputs) -> list[float]:
        metric = f"repeated_{self.order}"  # None for a text shorter than n
        return [repetition([text], (self.order,), inputs.language)[metric] or 0.0 for text in inputs.texts]


class Novelty(Reward):
    """Share of a text's n-grams that its document lacks, in [0, 1]; 0 for a text shorter than n.

    Args:
        order: n.
    """

    reads_source = True

    def __init__(self, order: int = 2) -> None:
        if order < 1:
            raise ValueError(f"Novelty needs an order of at least 1, got {order}")
        self.order = order

    @property
    def name(self) -> str:
        return f"novelty_{self.order}"

    def __call__(self, inputs: RewardInputs) -> list[float]:
        metric = f"novel_{self.order}"  # None for a text shorter than n
        pairs = zip(inputs.texts, inputs.sources, strict=True)
        return [novelty([text], [source], (self.order,), inputs.language)[metric] or 0.0 for text, source in pairs]


class LengthTarget(Reward):
    """1 for a text of about `words` words, less in proportion to the words beyond the tolerance, 0 from twice as many.

    Args:
        words: target number of words, counted as in the metric `words`.
        tolerance: number of words more or fewer that cost nothing.
    """

    def __init__(self, words: int, tolerance: int = 0) -> None:
        if words < 1 or tolerance < 0:
            raise ValueError(f"LengthTarget needs at least 1 word and a tolerance of at least 0: {words}, {tolerance}")
        self.words, self.tolerance = words, tolerance

    def __call__(self, inputs: RewardInputs) -> list[float]:
        # number of words outside the tolerance, negative within it
        beyond = [abs(len(length_words(text)) - self.words) - self.tolerance for text in inputs.texts]
        return [max(0.0, 1 - max(0, num_words) / self.words) for num_words in beyond]


class EntityCoverage(Reward):
    """Share of the document's entities that a text names, or of the text's entities that the document has.

    Without a tagger, a word with a digit is an entity, and one in upper case that does not begin a sentence. In the
    lower-cased texts of some models, only numbers are. Without entities, the reward is 0 for `source`, 1 for `summary`.

    Args:
        of: `source`: the document's entities that the text names (recall); `summary`: the text's entities that the
            document has (precision).
    """

    reads_source = True

    def __init__(self, of: Literal["source", "summary"] = "source") -> None:
        self.of = of

    @property
    def name(self) -> str:
        return f"entities_of_{self.of}"

    def __call__(self, inputs: RewardInputs) -> list[float]:
        rewards = []
        recall = self.of == "source"  # otherwise precision
        entities_of = {text: entities(text) for text in set(inputs.sources if recall else inputs.texts)}
        for text, source in zip(inputs.texts, inputs.sources, strict=True):
            with_entities, searched = (source, text) if recall else (text, source)
            searched_words = {word.casefold() for word in _WORD.findall(searched)}
            names = entities_of[with_entities]  # case-folded, as `searched_words`
            without_entities = 0.0 if recall else 1.0
            rewards.append(len(names & searched_words) / len(names) if names else without_entities)
        return rewards


def entities(text: str) -> set[str]:
    """Return case-folded words with a digit, or capitalized unless they begin a sentence (`EntityCoverage`)."""
    names = set()
    previous_end = 0  # end of the word before
    for match in _WORD.finditer(text):
        between = text[previous_end : match.start()]
        begins_sentence = previous_end == 0 or any(mark in between for mark in ".!?:\n")
        if any(map(str.isdigit, match[0])) or (match[0][0].isupper() and not begins_sentence):
            names.add(match[0].casefold())
        previous_end = match.end()
    return names


class Mixture(Reward):
    """Weighted sum of rewards; a negative weight makes a penalty. `SelfCritical` logs each as `train/reward/NAME`.

    Args:
        rewards: rewards to add.
        weights: weight of each reward; 1 by default.

    Raises:
        ValueError: if there is no reward, or the number of weights differs.
    """

    def __init__(self, rewards: list[Reward], weights: list[float] | None = None) -> None:
        self.rewards, self.weights = rewards, [1.0] * len(rewards) if weights is None else weights
        if not rewards or len(self.weights) != len(rewards):
            raise ValueError(f"Mixture needs a weight for each reward, got {len(self.weights)} for {len(rewards)}")

    @cached_property
    def reads_source(self) -> bool:
        return any(reward.reads_source for reward in self.rewards)

    @property
    def names(self) -> list[str]:
        """Names of the rewards; if several have the same name, the second one ends in _2, and so on."""
        names = [reward.name for reward in self.rewards]
        occurrences = [names[: index + 1].count(name) for index, name in enumerate(names)]
        return [name if number == 1 else f"{name}_{number}" for name, number in zip(names, occurrences)]

    def __call__(self, inputs: RewardInputs) -> list[float]:
        return self.combine([reward(inputs) for reward in self.rewards])

    def combine(self, columns: list[list[float]]) -> list[float]:
        """Return the weighted sum for each text; `columns` has the values of each reward for all texts."""
        by_text = zip(*columns, strict=True)
        return [sum(weight * value for weight, value in zip(self.weights, values)) for values in by_text]


def rouge_l_texts(
    hypotheses: Sequence[str], references: Sequence[str], stem: bool | str = True, language: str = "en"
) -> list[Score]:
    """Return ROUGE-L of pairs of texts, equal to `score_many` with "rougeL".

    It is faster if the hypotheses of one reference are consecutive, so that the reference is encoded once. There is a
    `ValueError` if the lengths differ, or a reference has no word (with its index).
    """
    words = vocabulary(stem, language)
    words.limit_size()  # the cache of word numbers is emptied if it has grown too large
    return _rouge_l(hypotheses, references, words.split, words.__getitem__)  # which returns the number of a word


def rouge_l_ids(hypotheses: Sequence[Sequence[int]], references: Sequence[Sequence[int]]) -> list[Score]:
    """Return ROUGE-L of pairs of token ids, otherwise as `rouge_l_texts`."""
    return _rouge_l(hypotheses, references, list)


def _rouge_l(
    hypotheses: Sequence[Any],
    references: Sequence[Any],
    units: Callable[[Any], list],
    number: Callable[[Any], int] | None = None,
) -> list[Score]:
    """Return ROUGE-L of each pair; `units` splits a text, and `number` maps units that are not integers to integers."""
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses but {len(references)} references")
    scores = []
    previous = None
    for hypothesis, reference in zip(hypotheses, references):
        if reference != previous:  # else the masks are those of the pair before
            previous = reference
            expected = units(reference)
            if not expected:
                raise ValueError(f"reference {len(scores)} is empty")
            # bit vectors of the positions of each unit, and of all positions, for the longest common subsequence
            masks, full = position_masks(map(number, expected) if number else expected)
        predicted = units(hypothesis)
        length = lcs_length(map(number, predicted) if number else predicted, masks, full)
        scores.append(score_of(length, len(predicted), len(expected)))
    return scores
