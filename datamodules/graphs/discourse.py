"""Approximate discourse graph: relations of sentences by markers, names, events and coreference."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.documents import Document
from datamodules.graphs.cues import Cues, cues, deverbal
from datamodules.graphs.graph import ParagraphGraph
from datamodules.graphs.paragraphs import Paragraphs
from datamodules.text.content_words import stem
from datamodules.text.language import warn_if_not_english

CUES = ("marker", "entity", "event", "deverbal", "coreference")


class Discourse(ParagraphGraph):
    """G[i][j] = number of discourse relations between paragraphs i and j, divided by their sum over all j != i.

    A rule-based version of the approximate discourse graph of Christensen et al. 2013, which Li et al. 2020 use. Two
    sentences of different paragraphs are related, with weight 1 for each cue:

    - `marker`: the second follows the first and begins with a discourse marker ("however", "as a result").
    - `entity`: both contain the same name.
    - `event`: both contain the same verb (by its stem; not "said").
    - `deverbal`: the second contains a definite noun derived from a verb of the first ("resigned", "the resignation").
      The second comes later than the first, or is in another source document.
    - `coreference`: the second follows the first and begins with a pronoun or demonstrative; or it contains "the X",
      and the first, an earlier sentence of the same source document, "a X".

    A sentence follows another if it is the next one in the same source document. `cues.py` defines markers, names,
    verbs and nouns.

    The relations of two paragraphs are summed over both directions, and every row is divided by its sum, as in the
    paper. A paragraph without relations has weights of 0. The graph is not symmetric, since rows have different sums.

    Args:
        use: cues to use.

    Raises:
        ValueError: if there is no cue, or no such cue.
    """

    name = "discourse"
    symmetric = False

    def __init__(self, use: Sequence[str] = CUES) -> None:
        if not use or set(use) - set(CUES):
            raise ValueError(f"use {list(use)}: choose from {', '.join(CUES)}")
        self.use = tuple(use)

    def settings(self) -> dict[str, Any]:
        return {"use": sorted(self.use)}

    def prepare(self, documents: Sequence[Document]) -> None:
        """Warn if documents are not English, as the cues are."""
        texts = (document.text for document in documents)
        warn_if_not_english("the cues of the graph 'discourse' are English", texts, self.language)

    def weights(self, paragraphs: Paragraphs) -> NDArray:
        counts = self.relations(paragraphs)
        np.fill_diagonal(counts, 0)
        divisor = counts.sum(1, keepdims=True)
        return np.divide(counts, divisor, out=np.zeros_like(counts), where=divisor > 0)  # else 0

    def relations(self, paragraphs: Paragraphs) -> NDArray:
        """Return the number of relations between the sentences of paragraphs i and j, [L, L], symmetric."""
        sentences = [sentence for text in paragraphs.texts for sentence in text]  # S in all
        owner = np.repeat(np.arange(len(paragraphs)), [len(text) for text in paragraphs.texts])  # paragraph, [S]
        member = np.eye(len(paragraphs))[owner]  # one-hot, [S, L]
        pairs = self._pairs(paragraphs, cues(sentences), owner)  # relations of sentence i with each earlier j, [S, S]
        one_direction = member.T @ pairs @ member  # sums over the sentences of two paragraphs, [L, L]
        return one_direction + one_direction.T

    def _pairs(self, paragraphs: Paragraphs, sentence_cues: list[Cues], owner: NDArray) -> NDArray:
        """Return how many cues (of `use`) relate sentence i to j < i, [S, S]; `owner` is each one's paragraph, [S]."""
        size = len(sentence_cues)
        # source document of each sentence, 0 if there is only one, [S]
        source = np.array(paragraphs.parts)[owner] if paragraphs.separate else np.zeros(size, dtype=int)
        same_source = source[:, None] == source  # [S, S]
        earlier = np.tri(size, k=-1, dtype=bool)  # j < i
        follows = np.zeros((size, size), dtype=bool)  # j = i - 1, in the same source document without a gap
        for i in range(1, size):
            same_paragraph = owner[i] == owner[i - 1]
            follows[i, i - 1] = same_paragraph or paragraphs.follows(owner[i])  # its paragraph follows that of i - 1
        marker = np.array([[cue.marker] for cue in sentence_cues], dtype=bool).reshape(size, 1)  # also if size is 0
        pronoun = np.array([[cue.pronoun] for cue in sentence_cues], dtype=bool).reshape(size, 1)
        # whether i contains "the X" and j "a X", [S, S]
        introduced = _share_item([cue.definite for cue in sentence_cues], [cue.indefinite for cue in sentence_cues])
        entities = [cue.entities for cue in sentence_cues]
        verbs = [cue.verbs for cue in sentence_cues]
        rules: dict[str, Callable[[], NDArray]] = {  # functions, so that only the cues in use are computed
            "marker": lambda: follows & marker,
            "entity": lambda: _share_item(entities, entities) & earlier,
            "event": lambda: _share_item(verbs, verbs) & earlier,
            # noun in i, verb in j < i; between source documents also noun in j, verb in i: entry [i, j] for both
            "deverbal": lambda: _below_diagonal(_has_deverbal_noun(sentence_cues) & (earlier | ~same_source)),
            "coreference": lambda: (follows & pronoun) | (introduced & same_source & earlier),
        }
        return sum((rules[name]().astype(float) for name in self.use), np.zeros((size, size)))


def _share_item(sets: Sequence[frozenset[str]], other_sets: Sequence[frozenset[str]]) -> NDArray:
    """Return whether `sets[i]` and `other_sets[j]` have a common item, bool [S, S]."""
    table = [[not items.isdisjoint(others) for others in other_sets] for items in sets]
    return np.array(table, dtype=bool).reshape(len(sets), len(other_sets))  # also without sentences


def _has_deverbal_noun(sentence_cues: Sequence[Cues]) -> NDArray:
    """Return whether sentence i has a definite noun derived from a verb of sentence j, bool [S, S]."""
    verbs = {verb for cue in sentence_cues for verb in cue.verbs}
    nouns = {noun for cue in sentence_cues for noun in cue.definite}
    # A derived noun has the stem of its verb or shares its first four letters, so only such verbs are compared.
    by_prefix: dict[str, list[str]] = {}
    for verb in verbs:
        by_prefix.setdefault(verb[:4], []).append(verb)
    verbs_of = {noun: {stem(noun), *filter(partial(deverbal, noun), by_prefix.get(noun[:4], ()))} for noun in nouns}
    # for each sentence, the verbs from which its definite nouns may be derived
    base_verbs = [frozenset().union(*(verbs_of[noun] for noun in cue.definite)) for cue in sentence_cues]
    return _share_item(base_verbs, [cue.verbs for cue in sentence_cues])


def _below_diagonal(pairs: NDArray) -> NDArray:
    """Return which unordered pairs are True in either direction, as entries [i, j] with j < i."""
    return np.tril(pairs | pairs.T, k=-1)
