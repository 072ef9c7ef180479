"""Control corpus of gap-sentence pre-training: a sentence whose words are all found in the others."""

import random
from collections.abc import Iterator

from datamodules.corpora.corpus import Corpus
from datamodules.documents import Record, UserError
from experiments.studies.controls.tasks.control_sentences import SPLITS, real_sentences, standard_library
from experiments.studies.controls.tasks.planted_names import COMMON

SLOTS = (
    COMMON[:10],
    ("buys", "cleans", "draws", "finds", "hides", "loses", "mends", "paints", "sells", "washes"),
    ("boats", "chairs", "clocks", "coins", "flutes", "lamps", "maps", "pots", "rugs", "shoes"),
    ("today", "daily", "early", "late", "often", "rarely", "twice", "weekly", "slowly", "alone"),
)


class PlantedPrincipals(Corpus):
    """Four short real sentences, each with one word of the summary at its end, in random order.

    The summary is a sentence of a name, a verb, an object and an adverb ("Anna paints boats daily."), each one of ten.
    With `principal`, it is also in the document, not as its first sentence: it shares a word with every other sentence,
    and all of it can be predicted from them. Of another sentence only the last word can.

    Args:
        corpus: corpus of the real sentences; docstrings of the standard library by default.
        principal: whether the document contains the summary, as for pre-training.
        pool: number of distinct real sentences, at least four.
        sizes: documents of train, val and test.
        seed: seed of the documents.

    Raises:
        UserError: if the pool is smaller than a document, or the corpus has fewer short sentences.
    """

    def __init__(
        self,
        corpus: Corpus | None = None,
        principal: bool = False,
        pool: int = 12,
        sizes: tuple[int, int, int] = (2000, 100, 200),
        seed: int = 0,
    ) -> None:
        if pool < len(SLOTS):
            raise UserError(f"PlantedPrincipals: pool is at least {len(SLOTS)}, got {pool}")
        self.corpus, self.principal, self.pool = corpus or standard_library(), principal, pool
        self.sizes, self.seed = tuple(sizes), seed

    def splits(self) -> list[str]:
        return list(SPLITS)

    def records(self, split: str) -> Iterator[Record]:
        short = real_sentences(self.corpus, "train", 3, 5)
        plain = [text.removesuffix(".") for text in short if text.removesuffix(".").replace(" ", "").isalpha()]
        if len(plain) < self.pool:
            raise UserError(
                f"PlantedPrincipals: the corpus has {len(plain)} sentences of 3 to 5 plain words, not {self.pool}; "
                "lower pool"
            )
        for number in range(self.sizes[SPLITS.index(split)]):
            rng = random.Random(f"principals {self.seed} {split} {number}")
            words = [rng.choice(slot) for slot in SLOTS]
            summary = f"{' '.join(words)}."
            sentences = [f"{text} {word}." for text, word in zip(rng.sample(plain[: self.pool], len(SLOTS)), words)]
            rng.shuffle(sentences)
            if self.principal:
                sentences.insert(rng.randrange(1, len(sentences) + 1), summary)
            yield Record(f"{split}-{number}", [sentences], [[summary]], f"planted principals {number} of {split}")

    def fingerprint(self, split: str) -> str:
        settings = f"{self.principal} {self.pool} {self.sizes} {self.seed}"
        return f"planted principals 1 {settings} {split} of {self.corpus.fingerprint('train')}"
