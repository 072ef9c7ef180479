"""Control corpus of coverage: enumerations of a few recurring words, in which attention can loop."""

import random
from collections.abc import Iterator

from datamodules.corpora.corpus import Corpus
from datamodules.documents import Record
from experiments.studies.controls.tasks.control_sentences import SPLITS, real_sentences, standard_library

COLOURS = ("red", "green", "blue", "white", "black")


class PlantedEnumerations(Corpus):
    """Two real sentences around an enumeration of colours, which is also the summary.

    Colours recur, but no trigram does. The last generated colour therefore does not determine the next: a model that
    looks it up in the document returns to its first occurrence and repeats itself, whereas coverage tells which
    positions were already attended to. Enumerations of validation and test are longer than those of training, so that
    counting words does not help.

    Args:
        corpus: corpus of the real sentences; docstrings of the standard library by default.
        colours: smallest and largest number of colours in training.
        eval_colours: the same in validation and test.
        sizes: number of documents of train, val and test.
    """

    def __init__(
        self,
        corpus: Corpus | None = None,
        colours: tuple[int, int] = (4, 10),
        eval_colours: tuple[int, int] = (14, 18),
        sizes: tuple[int, int, int] = (2000, 100, 200),
    ) -> None:
        self.corpus, self.sizes = corpus or standard_library(), tuple(sizes)
        self.colours, self.eval_colours = tuple(colours), tuple(eval_colours)

    def splits(self) -> list[str]:
        return list(SPLITS)

    def records(self, split: str) -> Iterator[Record]:
        sentences = real_sentences(self.corpus, split)
        limits = self.colours if split == "train" else self.eval_colours
        for number in range(self.sizes[SPLITS.index(split)]):
            rng = random.Random(f"{split} {number}")
            enumeration = " ".join(colours_in_a_row(rng.randint(*limits), rng))
            before, after = rng.sample(sentences, 2)
            document = [before, f"The colours are {enumeration}.", after]
            yield Record(f"{split}-{number}", [document], [[f"{enumeration}."]], f"enumeration {number} of {split}")

    def fingerprint(self, split: str) -> str:
        settings = f"{self.colours} {self.eval_colours} {self.sizes}"
        return f"planted enumerations 3 {settings} of {self.corpus.fingerprint(split)}"


def colours_in_a_row(number: int, rng: random.Random) -> list[str]:
    """Return random colours without equal neighbours and repeated trigrams."""
    row: list[str] = []
    trigrams: set[tuple[str, ...]] = set()
    while len(row) < number:
        free = [c for c in COLOURS if c not in row[-1:] and (*row[-2:], c) not in trigrams]
        if not free:  # rare: start again
            return colours_in_a_row(number, rng)
        row.append(rng.choice(free))
        trigrams.add(tuple(row[-3:]))
    return row
