"""Data of deep communicating agents: documents split between M agents, and a vocabulary extended by all their words."""

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, Literal

from torch import Tensor

from datamodules.batch import pad
from datamodules.corpora.corpus import Corpus
from datamodules.documents import Document
from datamodules.extended_words import WordsBatch, WordsData
from datamodules.loading import at_least_one
from datamodules.text.vocabulary import PAD

Split = Literal["even", "sentences", "paragraphs"]


@dataclass
class CommunicatingAgentsBatch(WordsBatch):
    """Documents in parts, `source` [B, M, I] and `lengths` [B, M], padding agents last; see `WordsBatch`."""


def even_parts(words: int, agents: int) -> list[int]:
    """Return lengths of contiguous parts that differ by at most one; with fewer words than agents, one word each."""
    agents = min(agents, words)
    return [words // agents + (part < words % agents) for part in range(agents)]


def paragraph_parts(paragraphs: list[int], agents: int) -> list[int]:
    """Return the lengths of contiguous parts of whole paragraphs, from the number of words of each, at least 1.

    If there are at most as many paragraphs as agents, each is a part. Otherwise each boundary is the end of a paragraph
    that is closest to that of an even split, such that every agent has a paragraph.
    """
    agents = min(agents, len(paragraphs))
    ends = [0, *accumulate(paragraphs)]
    boundaries = [0]
    for part in range(1, agents):
        ideal = ends[-1] * part / agents
        possible = range(boundaries[-1] + 1, len(paragraphs) - (agents - part) + 1)
        boundaries.append(min(possible, key=lambda boundary: abs(ends[boundary] - ideal)))
    boundaries.append(len(paragraphs))
    return [ends[after] - ends[before] for before, after in pairwise(boundaries)]


class CommunicatingAgentsData(WordsData):
    """Documents split into parts for `agents`; documents and first references are truncated.

    Paragraphs without words are left out. If a document has fewer words (sentences, paragraphs) than agents, the first
    agents have one each, and the others are padding without effect. A document without words becomes one unknown word.

    Args:
        agents: M, at least 1; that of the model.
        split: `even` parts, which may end anywhere, or parts of whole `sentences` or `paragraphs` of similar length.
        max_source: maximal number of words of a document for all agents together; about 800 in the paper.
        max_target: maximal number of tokens of a summary in the loss, end symbol included.

    The other arguments are those of `WordsData`.
    """

    batch_type = CommunicatingAgentsBatch

    def __init__(
        self,
        corpus: Corpus,
        agents: int = 3,
        split: Split = "even",
        max_source: int = 800,
        max_target: int = 110,
        **shared: Any,
    ) -> None:
        super().__init__(corpus, max_source=max_source, max_target=max_target, **shared)
        at_least_one(agents=agents)
        self.agents, self.split = agents, split

    def encode(self, document: Document) -> dict[str, Any]:
        features = super().encode(document)
        if self.split == "sentences":
            sentences = replace(document, parts=[[sentence] for sentence in document.sentences])
            features["paragraphs"] = super().encode(sentences)["paragraphs"]
        return features

    def feature_settings(self) -> dict[str, Any]:
        settings = super().feature_settings()
        return settings | {"split": self.split} if self.split == "sentences" else settings

    def parts(self, words: int, paragraphs: list[int]) -> list[int]:
        """Return the number of words of each agent for a document truncated to `words`."""
        if self.split == "even":
            return even_parts(words, self.agents)
        ends = [0, *(min(end, words) for end in accumulate(paragraphs))]
        return paragraph_parts([b - a for a, b in pairwise(ends) if b > a], self.agents)

    def arrange(self, sources: list[list[int]], rows: list[dict[str, Any]]) -> tuple[Tensor, Tensor]:
        parts = [self.parts(len(source), row["paragraphs"]) for source, row in zip(sources, rows)]
        parts = [sizes + [0] * (self.agents - len(sizes)) for sizes in parts]
        words_of_agents = []
        for source, sizes in zip(sources, parts):
            ends = accumulate(sizes, initial=0)
            words_of_agents += [source[before:after] for before, after in pairwise(ends)]
        return pad(words_of_agents, PAD).unflatten(0, (-1, self.agents)), pad(parts)  # [B, M, I], [B, M]
