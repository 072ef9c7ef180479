"""The approximate discourse graph: sentences that refer to each other, by markers, names, events and co-reference."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from datamodules.graphs.cues import Cues, cues, deverbal
from datamodules.graphs.graph import ParagraphGraph
from datamodules.graphs.paragraphs import Paragraphs

CUES = ("marker", "entity", "event", "deverbal", "coreference")


class Discourse(ParagraphGraph):
    """G[i][j] = the share of paragraph i's discourse relations to others that go to paragraph j.

    After the approximate discourse graph of Christensen et al. 2013, as Li et al. 2020 use it, by simple rules. Two
    sentences of different paragraphs are related, with weight 1 for each cue:

    - `marker`: the second begins with a discourse marker ("however", "as a result") and goes on from the first.
    - `entity`: both have the same name.
    - `event`: both have the same verb (its stem; not "said").
    - `deverbal`: the second has "the", "this" ... and a noun made of a verb of the first ("resigned", "the
      resignation").
    - `coreference`: the second begins with a pronoun or demonstrative and goes on from the first; or it has "the X",
      and the first, of the same source document and before it, "a X".

    To go on from another sentence means to stand right behind it, in the same source document. Deverbal nouns stand
    behind their verb, or in another source document. `cues.py` says what counts as a marker, name, verb and noun.

    The relations of two paragraphs are summed, in both directions, and every row is normalised: with `sum` by its sum,
    as in the paper, which makes it shares; with `max` by its largest weight. A paragraph without relations has weights
    of 0. As rows have sums of their own, the graph is not symmetric.

    Args:
        use: the cues that count.
        normalise: by what a row is divided.

    Raises:
        ValueError: if an argument has none of its values.
    """

    name, symmetric = "discourse", False

    def __init__(self, use: Sequence[str] = CUES, normalise: Literal["sum", "max"] = "sum") -> None:
        unknown = sorted(set(use) - set(CUES))
        if unknown or not use or normalise not in ("sum", "max"):
            raise ValueError(f"use {list(use)}: of {', '.join(CUES)}; normalise {normalise!r}: sum or max; choose")
        self.use, self.normalise = tuple(use), normalise

    def settings(self) -> dict[str, Any]:
        return {"use": sorted(self.use), "normalise": self.normalise}

    def weights(self, paragraphs: Paragraphs) -> NDArray:
        related = self.relations(paragraphs)
        np.fill_diagonal(related, 0)
        by = related.sum(1, keepdims=True) if self.normalise == "sum" else related.max(1, keepdims=True)
        return np.divide(related, by, out=np.zeros_like(related), where=by > 0)

    def relations(self, paragraphs: Paragraphs) -> NDArray:
        """How many relations the sentences of two paragraphs have, [L, L], symmetric."""
        sentences = [sentence for text in paragraphs.texts for sentence in text]
        owner = np.repeat(np.arange(len(paragraphs)), [len(text) for text in paragraphs.texts])
        member = np.eye(len(paragraphs))[owner]  # [S, L]
        pairs = self._pairs(paragraphs, cues(sentences), owner)
        once = member.T @ pairs @ member
        return once + once.T

    def _pairs(self, paragraphs: Paragraphs, found: list[Cues], owner: NDArray) -> NDArray:
        """Weights from a sentence to an earlier one it is related to, [S, S]; a pair stands there once."""
        size = len(found)
        source = np.array(paragraphs.parts)[owner] if paragraphs.separate else np.zeros(size, dtype=int)
        same_source = source[:, None] == source  # [S, S]
        earlier = np.tri(size, k=-1, dtype=bool)
        going_on = np.zeros((size, size), dtype=bool)
        for place in range(1, size):
            new = owner[place] != owner[place - 1]
            going_on[place, place - 1] = paragraphs.follows(owner[place]) if new else True
        begins = np.array([[cue.marker, cue.pronoun] for cue in found], dtype=bool).reshape(size, 2)
        introduced = _shared([cue.definite for cue in found], [cue.indefinite for cue in found])
        rules: dict[str, Callable[[], NDArray]] = {
            "marker": lambda: going_on & begins[:, :1],
            "entity": lambda: _shared([cue.entities for cue in found]) & earlier,
            "event": lambda: _shared([cue.verbs for cue in found]) & earlier,
            "deverbal": lambda: _folded(_nominalised(found) & (earlier | ~same_source)),
            "coreference": lambda: (going_on & begins[:, 1:]) | (introduced & same_source & earlier),
        }
        return sum((rules[name]().astype(float) for name in self.use), np.zeros((size, size)))


def _shared(sets: Sequence[Iterable[Hashable]], others: Sequence[Iterable[Hashable]] | None = None) -> NDArray:
    """Whether set i and other set j have an element in common, bool [S, S]."""
    others = sets if others is None else others
    columns = {item: column for column, item in enumerate(dict.fromkeys(item for found in sets for item in found))}

    def table(rows: Sequence[Iterable[Hashable]]) -> NDArray:
        out = np.zeros((len(rows), len(columns)))
        for row, items in enumerate(rows):
            out[row, [columns[item] for item in items if item in columns]] = 1
        return out

    return (table(sets) @ table(others).T) > 0


def _nominalised(found: Sequence[Cues]) -> NDArray:
    """Whether sentence i has a definite noun made of a verb of sentence j, bool [S, S]."""
    verbs = {verb for cue in found for verb in cue.verbs}
    by_beginning: dict[str, list[str]] = {}
    for verb in verbs:
        by_beginning.setdefault(verb[:4], []).append(verb)
    sources = {
        noun: frozenset(verb for verb in by_beginning.get(noun[:4], ()) if deverbal(noun, verb))
        for noun in {noun for cue in found for noun in cue.definite}
    }
    made_of = [frozenset().union(*(sources[noun] for noun in cue.definite)) for cue in found]
    return _shared(made_of, [cue.verbs for cue in found])


def _folded(pairs: NDArray) -> NDArray:
    """Pairs in either direction, below the diagonal alone."""
    return np.tril(pairs | pairs.T, k=-1)
