"""Control corpus of discourse: documents whose summary follows only from a planted discourse tree.

A document has a few real sentences of the built-in corpus in random order; each sentence is an EDU. A random labelled
tree over them is derived from a hash of the text, which no model can learn. The reference is the sentence that the tree
determines:

    nucleus    the most nuclear one: from the root, follow the nucleus (the left one of two)
    relation   the satellite of the only node with the relation `cause`, a leaf; leaves are also satellites of other
               relations, so that labels are needed

`PlantedParser` returns the trees. The target is equally likely at each position. Without the right tree, a
model cannot exceed the accuracy of guessing, 1 / sentences; with it, it can reach 1.
"""

import hashlib
import importlib.util
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from datamodules.corpora.corpus import Corpus, make_document
from datamodules.corpora.docstrings import Docstrings
from datamodules.documents import BadRecord, Document, Record, UserError

if TYPE_CHECKING:
    from torch import Tensor

Task = Literal["nucleus", "relation"]
RELATIONS = ("elaboration", "contrast", "cause")
_NS, _SN, _NN = 0, 1, 2  # as in `discourse.distributions.NUCLEARITIES`
_CAUSE = RELATIONS.index("cause")
VERSION = 1  # increase it when the same arguments give other documents or trees
_OFFSETS = {"train": 0, "val": 1 << 20, "test": 1 << 21}


class PlantedTrees(Corpus):
    """Sentences in random order; the planted tree determines which one is the summary.

    Args:
        task: criterion of the target, `nucleus` or `relation`, see the module docstring.
        sentences: number of sentences of a document, E.
        pool: number of distinct sentences that documents are made of.
        words: maximal number of words of a sentence, at least 3.
        train: number of training documents.
        held_out: number of validation documents, and of test documents.
        seed: seed of the documents.
        corpus: corpus of the sentences; the docstrings of `torch.nn` by default.

    Raises:
        UserError: if the corpus has too few sentences of that length, or a number is too small.
    """

    def __init__(
        self,
        task: Task = "nucleus",
        sentences: int = 8,
        pool: int = 48,
        words: int = 6,
        train: int = 3000,
        held_out: int = 500,
        seed: int = 0,
        corpus: Corpus | None = None,
    ) -> None:
        if not 2 <= sentences <= pool or words < 3:
            raise UserError(
                "PlantedTrees: sentences must be at least 2, pool at least sentences, words at least 3; got "
                f"{sentences}, {pool}, {words}"
            )
        self.task, self.sentences, self.pool, self.words = task, sentences, pool, words
        self.counts = {"train": train, "val": held_out, "test": held_out}
        self.seed, self.corpus = seed, corpus or _torch_docstrings()
        self._sentences: list[str] = []

    def splits(self) -> list[str]:
        return list(self.counts)

    def records(self, split: str) -> Iterator[Record]:
        texts = self._pool()
        for number in range(self.counts[split]):
            rng = random.Random(f"{self.seed} {_OFFSETS[split] + number}")
            chosen = rng.sample(texts, self.sentences)
            target = planted_tree(chosen, self.task).target
            yield Record(f"{split}-{number}", [chosen], [[chosen[target]]], f"planted tree {number} of {split}")

    def fingerprint(self, split: str) -> str:
        shape = (self.task, self.sentences, self.pool, self.words, self.counts[split], self.seed)
        return f"planted trees {VERSION} {shape} {split} of {self.corpus.fingerprint('train')}"

    def _pool(self) -> list[str]:
        """Return the first sentences of suitable length with distinct first words."""
        if self._sentences:
            return self._sentences
        first_words: set[str] = set()
        for record in self.corpus.records("train"):
            document = make_document(record)
            if isinstance(document, BadRecord):
                continue
            for sentence in (sentence for part in document.parts for sentence in part):
                words = sentence.rstrip(".").split()
                is_usable = 3 <= len(words) <= self.words and all(map(str.isalpha, words))
                if is_usable and words[0].lower() not in first_words:
                    first_words.add(words[0].lower())
                    self._sentences.append(sentence)
                    if len(self._sentences) == self.pool:
                        return self._sentences
        raise UserError(
            f"PlantedTrees: the corpus has {len(self._sentences)} sentences of 3 to {self.words} plain words that "
            f"begin differently, not {self.pool}; lower pool or raise words"
        )


def _torch_docstrings() -> Docstrings:
    """Return the docstrings of `torch.nn`, located without importing torch."""
    return Docstrings([str(Path(importlib.util.find_spec("torch").origin).parent / "nn")])


class PlantedTree(NamedTuple):
    """Discourse tree of a document.

    Attributes:
        nodes: (start, split, end, nuclearity, relation), see `discourse.distributions.tree_ldd`, [E - 1, 5].
        target: index of the sentence that is the summary.
    """

    nodes: "Tensor"
    target: int


def planted_tree(sentences: list[str], task: Task, draw: int = 0, target: int | None = None) -> PlantedTree:
    """Return the tree of a document, a function of its text.

    Args:
        sentences: sentences of the document, E.
        task: see `PlantedTrees`.
        draw: 0 for the tree that determines the reference; other numbers give unrelated trees of the same kind.
        target: index of the sentence that the tree makes the summary; a random one by default.
    """
    import torch

    digest = hashlib.sha256(f"{VERSION} {task} {draw} {sentences}".encode()).digest()
    rng = random.Random(digest)
    random_target = rng.randrange(len(sentences))
    target = random_target if target is None else target
    nodes, spans = [], [(0, len(sentences) - 1)]
    while spans:
        start, end = spans.pop()
        if start == end:
            continue
        split = rng.randrange(start, end)
        nuclearity, relation = rng.choices((_NS, _SN, _NN), (2, 2, 1))[0], rng.randrange(len(RELATIONS))
        if task == "nucleus" and start <= target <= end:
            # The target is in the nucleus of all its ancestors, in the left one of two nuclei.
            nuclearity = rng.choices((_NS, _NN), (2, 1))[0] if target <= split else _SN
        if task == "relation":
            relation = rng.choice([number for number in range(len(RELATIONS)) if number != _CAUSE])
            # Only the parent of the target has the relation `cause`, with the target as its satellite.
            left, right = start == split == target, split + 1 == end == target
            if left or right:
                nuclearity, relation = (_SN if left else _NS), _CAUSE
        nodes.append((start, split, end, nuclearity, relation))
        spans += [(start, split), (split + 1, end)]
    return PlantedTree(torch.tensor(nodes, dtype=torch.int32).reshape(-1, 5), target)


def target_of(document: Document) -> int:
    """Return the index of the sentence of a control document that is its reference."""
    return document.parts[0].index(document.references[0][0])
