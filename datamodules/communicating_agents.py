"""Data of deep communicating agents: documents split between M agents, and a vocabulary extended by all their words."""

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, Literal

from torch import Tensor

from datamodules.batch import pad
from datamodules.corpora.corpus import Corpus
from datamodules.documents import Document
from datamodules.extended_words import WordsBatch, WordsData
from datamodules.loading import at_least
from datamodules.text.vocabulary import PAD


@dataclass
class CommunicatingAgentsBatch(WordsBatch):
    """Documents in M parts of I words: `source` [B, M, I], `lengths` [B, M], empty parts last; see `WordsBatch`."""


def even_parts(words: int, agents: int) -> list[int]:
    """Return the numbers of words, at least 1 and differing by at most one, of the parts of a text for the agents."""
    agents = min(agents, words)
    return [words // agents + (part < words % agents) for part in range(agents)]  # the first parts take the remainder


def paragraph_parts(paragraphs: list[int], agents: int) -> list[int]:
    """Return the number of words of each agent's part of a text, where a part is a sequence of whole paragraphs.

    `paragraphs` are the numbers of words of the paragraphs, at least 1 each. If there are at most as many paragraphs as
    agents, each paragraph is a part. Otherwise a part ends with the paragraph whose end is the closest to a boundary of
    an even split, among those that leave at least one for each later agent.
    """
    agents = min(agents, len(paragraphs))
    ends = [0, *accumulate(paragraphs)]  # ends[i]: number of words in the first i paragraphs
    boundaries = [0]  # number of paragraphs before each part
    for part in range(1, agents):
        even_end = ends[-1] * part / agents
        possible = range(boundaries[-1] + 1, len(paragraphs) - (agents - part) + 1)  # leaves one for each later agent
        boundaries.append(min(possible, key=lambda boundary: abs(ends[boundary] - even_end)))
    boundaries.append(len(paragraphs))
    return [ends[after] - ends[before] for before, after in pairwise(boundaries)]


class CommunicatingAgentsData(WordsData):
    """Documents split into parts for `agents`, and first references as targets, both truncated.

    Paragraphs without words are left out. If a document has fewer words (sentences, paragraphs) than agents, the first
    agents have one each, and the others are padding without effect. A document without words becomes one unknown word.

    Args:
        agents: M, at least 1; the same as in the model.
        split: `even` parts, which may end anywhere, or parts of whole `sentences` or `paragraphs` of similar length.
        max_source: maximum number of words of a document for all agents; about 800 in Celikyilmaz et al. 2018.
        max_target: maximum number of tokens of a summary in the loss, end symbol included.
        shared: arguments of `WordsData`.
    """

    batch_type = CommunicatingAgentsBatch

    def __init__(
        self,
        corpus: Corpus,
        agents: int = 3,
        split: Literal["even", "sentences", "paragraphs"] = "even",
        max_source: int = 800,
        max_target: int = 110,
        **shared: Any,
    ) -> None:
        super().__init__(corpus, max_source=max_source, max_target=max_target, **shared)
        at_least(1, agents=agents)
        self.agents = agents
        self.split = split

    def encode(self, document: Document) -> dict[str, Any]:
        """Return the features of `WordsData`; if `split` is `sentences`, `paragraphs` has the lengths of sentences."""
        features = super().encode(document)
        if self.split == "sentences":
            sentences = replace(document, parts=[[sentence] for sentence in document.sentences])
            features["paragraphs"] = super().encode(sentences)["paragraphs"]
        return features

    def feature_settings(self) -> dict[str, Any]:  # what `encode` depends on, for the cache key
        settings = super().feature_settings()
        # the other two kinds of `split` have the same features, and can share a cache
        return settings | {"split": self.split} if self.split == "sentences" else settings

    def parts(self, words: int, paragraphs: list[int]) -> list[int]:
        """Return how many of a document's first `words` each agent reads; `paragraphs` are lengths as in `encode`."""
        if self.split == "even":
            return even_parts(words, self.agents)
        ends = [0, *(min(end, words) for end in accumulate(paragraphs))]
        lengths = [end - start for start, end in pairwise(ends) if end > start]  # of the paragraphs within `words`
        return paragraph_parts(lengths, self.agents)

    def arrange(self, sources: list[list[int]], rows: list[dict[str, Any]]) -> tuple[Tensor, Tensor]:
        """Split sources, lists of word ids, by agent; return padded ids, [B, M, I], and numbers of words, [B, M]."""
        lengths, words_of_agents = [], []  # B lists of M numbers, and B M lists of words
        for source, row in zip(sources, rows):
            sizes = self.parts(len(source), row["paragraphs"])  # of each agent; `paragraphs`: lengths, see `encode`
            sizes += [0] * (self.agents - len(sizes))  # padding for agents without words
            lengths.append(sizes)
            words_of_agents += [source[start:end] for start, end in pairwise(accumulate(sizes, initial=0))]
        return pad(words_of_agents, PAD).unflatten(0, (-1, self.agents)), pad(lengths)
