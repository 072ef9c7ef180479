"""Rewards of generated texts for self-critical training, computed for whole batches."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import regex

from datamodules.text.language import SPACELESS, length_words
from lightning_modules.metrics.novelty import novelty, repetition
from lightning_modules.metrics.rouge import rouge_scores

_WORD = regex.compile(rf"(?V1)[[\w--{SPACELESS}]\d]+(?:[.,:٫٬]\d+)*|[{SPACELESS}--\d]+")  # 1,000.5 is one word


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
    """ROUGE F1 in [0, 1] with the best reference; a reference without words counts 0, and warns unless it is blank.

    Args:
        variant: "rougeL", "rouge1", "rouge2", ...
        stem: whether words are stemmed (Porter). By default, the reward is the validation metric rougeL / 100.

    Raises:
        ValueError: for an unknown variant or stemmer.
    """

    def __init__(self, variant: str = "rougeL", stem: bool = True) -> None:
        if variant == "rougeLsum":
            raise ValueError("RougeReward: rougeLsum needs sentences, but rewards get whole texts; use rougeL")
        rouge_scores(["a"], [["a"]], (variant,), stem)  # raises an error for an unknown variant or stemmer
        self.variant = variant
        self.stem = stem

    @property
    def name(self) -> str:
        return self.variant

    def __call__(self, inputs: RewardInputs) -> list[float]:
        options = {"variants": (self.variant,), "stem": self.stem, "language": inputs.language}
        rewards = []
        for text, of_document in zip(inputs.texts, inputs.references):
            references = [[reference] for reference in of_document if reference.strip()]
            if references:
                rewards.append(rouge_scores([text], references, **options)[self.variant].fmeasure)
            else:
                rewards.append(0.0)
        return rewards


class Repetition(Reward):
    """Share of a text's n-grams that repeat earlier ones, in [0, 1); 0 for a text shorter than n. Weigh it negatively.

    Args:
        order: n, the number of words of an n-gram.
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
        order: n, the number of words of an n-gram.
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
    """max(0, 1 - d / `words`) for a text that is d words longer or shorter than the target allows.

    Args:
        words: target number of words, counted as in the metric `words`.
        tolerance: number of words more or fewer that cost nothing; d counts only the words beyond it.
    """

    def __init__(self, words: int, tolerance: int = 0) -> None:
        if words < 1 or tolerance < 0:
            raise ValueError(f"LengthTarget needs at least 1 word and a tolerance of at least 0: {words}, {tolerance}")
        self.words = words
        self.tolerance = tolerance

    def __call__(self, inputs: RewardInputs) -> list[float]:
        # number of words beyond the tolerance, negative within it
        excess = [abs(len(length_words(text)) - self.words) - self.tolerance for text in inputs.texts]
        return [max(0.0, 1 - max(0, num_words) / self.words) for num_words in excess]


class EntityCoverage(Reward):
    """Share of the document's entities that a text names, or of the text's entities that the document has.

    There is no tagger: entities are words with a digit, and capitalized words that do not begin a sentence; in the
    lower-cased texts of some models, only numbers. Without entities, the reward is 0 for `source`, 1 for `summary`.

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
    """Return the case-folded words of a text that have a digit, or are capitalized and do not begin a sentence."""
    names = set()
    previous_end = 0  # end of the previous word
    for match in _WORD.finditer(text):
        between = text[previous_end : match.start()]
        begins_sentence = previous_end == 0 or any(mark in between for mark in ".!?:\n。！？：")
        if any(map(str.isdigit, match[0])) or (match[0][0].isupper() and not begins_sentence):
            names.add(match[0].casefold())
        previous_end = match.end()
    return names


class Mixture(Reward):
    """Weighted sum of rewards; a negative weight makes a penalty. Training logs each one as `train/reward/NAME`.

    Args:
        rewards: rewards to add.
        weights: weight of each reward; 1 by default.

    Raises:
        ValueError: if there is no reward, or the number of weights differs.
    """

    def __init__(self, rewards: list[Reward], weights: list[float] | None = None) -> None:
        self.rewards = rewards
        self.weights = [1.0] * len(rewards) if weights is None else weights
        if not rewards or len(self.weights) != len(rewards):
            raise ValueError(f"Mixture needs a weight for each reward, got {len(self.weights)} for {len(rewards)}")

    @property
    def reads_source(self) -> bool:
        return any(reward.reads_source for reward in self.rewards)

    @property
    def names(self) -> list[str]:
        """Names of the rewards, made unique: if several have the same name, the second one ends in _2, and so on."""
        names = [reward.name for reward in self.rewards]
        occurrences = [names[: index + 1].count(name) for index, name in enumerate(names)]  # up to each: 1, 2, ..
        return [name if number == 1 else f"{name}_{number}" for name, number in zip(names, occurrences)]

    def __call__(self, inputs: RewardInputs) -> list[float]:
        return self.combine([reward(inputs) for reward in self.rewards])

    def combine(self, columns: list[list[float]]) -> list[float]:
        """Return the weighted sum for each text; `columns` has the values of each reward for all texts."""
        by_text = zip(*columns, strict=True)
        return [sum(weight * value for weight, value in zip(self.weights, values)) for values in by_text]
