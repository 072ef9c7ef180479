"""Control corpus of copying and self-critical training: names with roles among real sentences."""

import random
import re
from collections.abc import Iterator
from typing import Literal

from datamodules.corpora.corpus import Corpus
from datamodules.documents import Record
from experiments.studies.controls.tasks.control_sentences import SPLITS, made_up_name, real_sentences, standard_library

ROLES = ("keeper", "painter", "owner", "guard")
COMMON = ("Anna", "Boris", "Clara", "David", "Elena", "Frank", "Greta", "Henry", "Irene", "Jonas", "Klara", "Louis")
_PLANTED = re.compile(rf"its ({'|'.join(ROLES)}) is called (\w+)", re.IGNORECASE)


class PlantedNames(Corpus):
    """Two real sentences and four planted ones ("Its keeper is called Zarubo."), in random order.

    The reference depends on the task:

    - `keeper`: the name of the keeper. A rare name occurs in one document only and in no vocabulary, so that it can be
      copied but not generated; common names can be both.
    - `everyone`: all four names in the order of `ROLES`, the keeper's in a separate sentence: "A. B C D." A fraction
      of the training references is flawed: they have three names in one sentence, "A B C." By word overlap with the
      correct answer, its first sentence scores higher than that of the correct answer, its whole text lower.

    Args:
        corpus: corpus of the real sentences; docstrings of the standard library by default.
        task: `keeper` or `everyone`.
        rare: fraction of documents with rare names.
        flawed: fraction of flawed training references, for `everyone`; validation and test have none.
        sizes: number of documents of train, val and test.
    """

    def __init__(
        self,
        corpus: Corpus | None = None,
        task: Literal["keeper", "everyone"] = "keeper",
        rare: float = 0.5,
        flawed: float = 0.0,
        sizes: tuple[int, int, int] = (2000, 100, 200),
    ) -> None:
        self.corpus, self.task, self.sizes = corpus or standard_library(), task, tuple(sizes)
        self.rare, self.flawed = rare, flawed

    def splits(self) -> list[str]:
        return list(SPLITS)

    def records(self, split: str) -> Iterator[Record]:
        sentences = real_sentences(self.corpus, split)
        for number in range(self.sizes[SPLITS.index(split)]):
            rng = random.Random(f"{split} {number}")
            is_rare, is_flawed = rng.random() < self.rare, split == "train" and rng.random() < self.flawed
            names = [made_up_name(rng) for _ in ROLES] if is_rare else rng.sample(COMMON, len(ROLES))
            document = [f"Its {role} is called {name}." for role, name in zip(ROLES, names)]
            document += rng.sample(sentences, 2)
            rng.shuffle(document)
            summary = self._flawed(names) if is_flawed else self._answer(names)
            kind = "rare" if is_rare else "common"
            yield Record(f"{split}-{kind}-{number}", [document], [summary], f"planted names {number} of {split}")

    def fingerprint(self, split: str) -> str:
        settings = f"{self.task} {self.rare} {self.flawed} {self.sizes}"
        return f"planted names 1 {settings} of {self.corpus.fingerprint(split)}"

    def _answer(self, names: list[str]) -> list[str]:
        if self.task == "keeper":
            return [f"{names[0]}."]
        return [f"{names[0]}.", f"{' '.join(names[1:])}."]

    def _flawed(self, names: list[str]) -> list[str]:
        return [f"{' '.join(names[:-1])}."]


def planted_answer(text: str) -> str:
    """Return the answer of the task `everyone`, "A. B C D.", from the text of a document."""
    names = {role.lower(): name for role, name in _PLANTED.findall(text)}
    first, *remaining = (names[role] for role in ROLES)
    return f"{first}. {' '.join(remaining)}."
