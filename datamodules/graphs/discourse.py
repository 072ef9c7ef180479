"""Approximate discourse graph: relations of sentences by markers, names, events and coreference."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.documents import Document
from datamodules.graphs.cues import Cues, cues, deverbal
from datamodules.graphs.graph import ParagraphGraph
from datamodules.graphs.paragraphs import Paragraphs
from datamodules.text.language import warn_if_not_english

CUES = ("marker", "entity", "event", "deverbal", "coreference")


class Discourse(ParagraphGraph):
    """G[i][j] = the fraction of the discourse relations of paragraph i with other paragraphs that are with paragraph j.

    A rule-based version of the approximate discourse graph of Christensen et al. 2013, which Li et al. 2020 use. Two
    sentences of different paragraphs are related, with weight 1 for each cue:

    - `marker`: the second follows the first and begins with a discourse marker ("however", "as a result").
    - `entity`: both contain the same name.
    - `event`: both contain the same verb (by its stem; not "said").
    - `deverbal`: the second contains a definite noun derived from a verb of the first ("resigned", "the resignation").
      It comes later, or is in another source document.
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

    name, symmetric = "discourse", False

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
        return np.divide(counts, divisor, out=np.zeros_like(counts), where=divisor > 0)

    def relations(self, paragraphs: Paragraphs) -> NDArray:
        """Return the number of relations between the sentences of two paragraphs, [L, L], symmetric."""
        sentences = [sentence for text in paragraphs.texts for sentence in text]
        owner = np.repeat(np.arange(len(paragraphs)), [len(text) for text in paragraphs.texts])
        member = np.eye(len(paragraphs))[owner]  # [S, L]
        pairs = self._pairs(paragraphs, cues(sentences), owner)
        weights = member.T @ pairs @ member
        return weights + weights.T

    def _pairs(self, paragraphs: Paragraphs, sentence_cues: list[Cues], owner: NDArray) -> NDArray:
        """Return the weights of related pairs of sentences, each pair once, [S, S]."""
        size = len(sentence_cues)
        source = np.array(paragraphs.parts)[owner] if paragraphs.separate else np.zeros(size, dtype=int)
        same_source = source[:, None] == source  # [S, S]
        earlier = np.tri(size, k=-1, dtype=bool)
        follows = np.zeros((size, size), dtype=bool)  # [i, i - 1]: sentence i follows its predecessor
        for sentence in range(1, size):
            new_paragraph = owner[sentence] != owner[sentence - 1]
            follows[sentence, sentence - 1] = paragraphs.follows(owner[sentence]) if new_paragraph else True
        begins = np.array([[cue.marker, cue.pronoun] for cue in sentence_cues], dtype=bool).reshape(size, 2)
        introduced = _shared([cue.definite for cue in sentence_cues], [cue.indefinite for cue in sentence_cues])
        rules: dict[str, Callable[[], NDArray]] = {
            "marker": lambda: follows & begins[:, :1],
            "entity": lambda: _shared([cue.entities for cue in sentence_cues]) & earlier,
            "event": lambda: _shared([cue.verbs for cue in sentence_cues]) & earlier,
            "deverbal": lambda: _folded(_nominalised(sentence_cues) & (earlier | ~same_source)),
            "coreference": lambda: (follows & begins[:, 1:]) | (introduced & same_source & earlier),
        }
        return sum((rules[name]().astype(float) for name in self.use), np.zeros((size, size)))


def _shared(sets: Sequence[Iterable[Hashable]], column_sets: Sequence[Iterable[Hashable]] | None = None) -> NDArray:
    """Return whether set i and other set j share an element, bool [S, S]."""
    column_sets = sets if column_sets is None else column_sets
    distinct = dict.fromkeys(item for items in sets for item in items)
    columns = {item: column for column, item in enumerate(distinct)}

    def table(rows: Sequence[Iterable[Hashable]]) -> NDArray:
        out = np.zeros((len(rows), len(columns)))
        for row, items in enumerate(rows):
            out[row, [columns[item] for item in items if item in columns]] = 1
        return out

    return (table(sets) @ table(column_sets).T) > 0


def _nominalised(sentence_cues: Sequence[Cues]) -> NDArray:
    """Return whether sentence i has a definite noun derived from a verb of sentence j, bool [S, S]."""
    verbs = {verb for cue in sentence_cues for verb in cue.verbs}
    nouns = {noun for cue in sentence_cues for noun in cue.definite}
    # Derived nouns share the first four letters of their verbs, so only verbs with the same prefix are compared.
    by_prefix: dict[str, list[str]] = {}
    for verb in verbs:
        by_prefix.setdefault(verb[:4], []).append(verb)
    bases = {noun: {verb for verb in by_prefix.get(noun[:4], ()) if deverbal(noun, verb)} for noun in nouns}
    base_verbs = [frozenset().union(*(bases[noun] for noun in cue.definite)) for cue in sentence_cues]
    return _shared(base_verbs, [cue.verbs for cue in sentence_cues])


def _folded(pairs: NDArray) -> NDArray:
    """Move all pairs below the diagonal."""
    return np.tril(pairs | pairs.T, k=-1)
