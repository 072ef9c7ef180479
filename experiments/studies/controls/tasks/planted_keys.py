"""Control corpus for communicating agents: one part of a document names a key, another has the values of all keys."""

import random
from collections.abc import Iterator

from datamodules.corpora.corpus import Corpus
from datamodules.documents import Record, UserError
from experiments.studies.controls.tasks.control_sentences import SPLITS, made_up_name, real_sentences, standard_library
from experiments.studies.controls.tasks.planted_enumerations import COLOURS


class PlantedKeys(Corpus):
    """Documents in which one paragraph ends with "The key is red." and another has "Red holds Zarubo." for each key.

    The summary is the value of the key. Values are made up and unique to a document, so that they are in no vocabulary.
    One paragraph is not enough: a guess among three values is correct in a third of the documents. Every paragraph
    begins with a real sentence; with more than two paragraphs, the remaining ones have only that.

    An agent that reads the values needs a message from the agent that reads the key. There is one shortcut: the decoder
    starts from the last state of the first agent, which may encode a key in the first paragraph. The key is therefore
    in a later paragraph, unless `key_first`.

    Args:
        corpus: corpus of the real sentences; by default docstrings of the standard library.
        paragraphs: number of paragraphs, M, at least 2; one for each agent.
        keys: number of keys, from 2 to 5.
        key_first: put the paragraph with the key first.
        sizes: documents of train, val and test.

    Raises:
        UserError: if there are fewer than two paragraphs or keys, or more keys than colours.
    """

    def __init__(
        self,
        corpus: Corpus | None = None,
        paragraphs: int = 3,
        keys: int = 3,
        key_first: bool = False,
        sizes: tuple[int, int, int] = (2000, 100, 200),
    ) -> None:
        if paragraphs < 2 or not 2 <= keys <= len(COLOURS):
            raise UserError(
                f"PlantedKeys: at least 2 paragraphs and from 2 to {len(COLOURS)} keys; got {paragraphs} and {keys}"
            )
        self.corpus, self.sizes = corpus or standard_library(), sizes
        self.paragraphs, self.keys, self.key_first = paragraphs, COLOURS[:keys], key_first

    def splits(self) -> list[str]:
        return list(SPLITS)

    def records(self, split: str) -> Iterator[Record]:
        sentences = real_sentences(self.corpus, split, max_words=8)
        for number in range(self.sizes[SPLITS.index(split)]):
            rng = random.Random(f"keys {split} {number}")
            values = {key: made_up_name(rng) for key in self.keys}
            key = rng.choice(self.keys)
            parts = [[sentence] for sentence in rng.sample(sentences, self.paragraphs)]
            key_part = 0 if self.key_first else rng.randrange(1, self.paragraphs)
            value_part = rng.choice([part for part in range(self.paragraphs) if part != key_part])
            parts[key_part].append(f"The key is {key}.")
            order = rng.sample(self.keys, len(self.keys))
            parts[value_part] += [f"{name.capitalize()} holds {values[name]}." for name in order]
            yield Record(f"{split}-{number}", parts, [[f"{values[key]}."]], f"planted keys {number} of {split}")

    def fingerprint(self, split: str) -> str:
        settings = f"{self.paragraphs} {len(self.keys)} {self.key_first} {tuple(self.sizes)}"
        return f"planted keys 1 {settings} of {self.corpus.fingerprint(split)}"
