"""Control corpus of sentence selection: the important sentences occur several times, with small variations."""

import random
from collections.abc import Iterator
from typing import Literal, get_args

from datamodules.corpora.corpus import Corpus, make_document
from datamodules.documents import BadRecord, Record, UserError

Variation = Literal["one_word", "every_third_word", "none"]
_COPIES = (4, 3, 2)  # number of versions of each repeated sentence
_PUNCTUATION = ".,;:!?()'\"`"


class PlantedDuplicates(Corpus):
    """Documents with three repeated sentences among others, all from different articles.

    A document has four, three and two versions of three sentences, and `fillers` sentences that occur once, shuffled;
    all are from different articles of another corpus. The summary is the three repeated sentences. The most frequent
    sentence is the most similar to the whole document, so a selector by relevance takes several versions of it; with
    redundancy it takes all three sentences; by redundancy alone it takes fillers.

    With `one_word`, each version lacks one word, and versions share trigrams. With `every_third_word`, each lacks every
    third word, starting from the first, second or third, and no two of these share a trigram. With `none` each of the
    three sentences occurs once, so there is no redundancy. With an `opening`, such as "It should be noted that", the
    three sentences and their versions begin with these words, so that unrelated sentences share trigrams.

    Random choices depend only on the split, the number of the document and `seed`.

    Args:
        corpus: corpus of the sentences; those of 10 to 30 plain words are used, without punctuation. References are
            not read.
        variation: how versions of a sentence differ.
        opening: words that all versions begin with.
        fillers: number of sentences that are not repeated.
        documents: number of documents of each split.
        seed: seed of the random choices.

    Raises:
        ValueError: if an argument is out of bounds.
        UserError: if a split has too few articles.
    """

    def __init__(
        self,
        corpus: Corpus,
        variation: Variation = "one_word",
        opening: str = "",
        fillers: int = 6,
        documents: int = 200,
        seed: int = 0,
    ) -> None:
        if variation not in get_args(Variation):
            raise ValueError(f"corpus.variation must be one of {', '.join(get_args(Variation))}; got {variation!r}")
        if fillers < 0 or documents < 1:
            raise ValueError(f"corpus.fillers must be at least 0 and documents 1; got {fillers}, {documents}")
        self.corpus, self.variation, self.opening = corpus, variation, opening.split()
        self.fillers, self.documents, self.seed = fillers, documents, seed

    def splits(self) -> list[str]:
        return self.corpus.splits()

    def fingerprint(self, split: str) -> str:
        settings = f"{self.variation} {self.opening} {self.fillers} {self.documents} {self.seed}"
        return f"planted duplicates 1 {settings} of {self.corpus.fingerprint(split)}"

    def records(self, split: str) -> Iterator[Record]:
        articles = list(self._articles(split))
        needed = len(_COPIES) + self.fillers
        if len(articles) < needed:
            problem = f"{len(articles)} articles with a sentence of 10 to 30 plain words, a document needs {needed}"
            raise UserError(f"{self.corpus.title(split)}: {problem}; name a larger corpus")
        for number in range(self.documents):
            rng = random.Random(f"{self.seed} {split} {number}")
            sentences = [rng.choice(article) for article in rng.sample(articles, needed)]
            yield self._record(f"{split}-{number}", sentences, rng)

    def _articles(self, split: str) -> Iterator[list[list[str]]]:
        """Yield the usable sentences of each article, as words."""
        for record in self.corpus.records(split):
            article = make_document(record)
            if isinstance(article, BadRecord):
                continue
            sentences = [[word.strip(_PUNCTUATION) for word in text.split()] for text in article.sentences]
            # A token such as a.b() counts as several words, so that versions would share a trigram.
            usable = [words for words in sentences if 10 <= len(words) <= 30 and all(map(str.isalpha, words))]
            if usable:
                yield usable

    def _record(self, name: str, sentences: list[list[str]], rng: random.Random) -> Record:
        repeated, fillers = sentences[: len(_COPIES)], sentences[len(_COPIES) :]
        document = list(fillers)
        for words, copies in zip(repeated, _COPIES):
            document += [[*self.opening, *version] for version in self._versions(words, copies, rng)]
        rng.shuffle(document)
        reference = [" ".join([*self.opening, *words]) for words in repeated]
        return Record(name, [[" ".join(words) for words in document]], [reference], name)

    def _versions(self, words: list[str], copies: int, rng: random.Random) -> list[list[str]]:
        """Return the sentence and shortened versions of it, `copies` in all."""
        if self.variation == "none":
            return [words]
        if self.variation == "one_word":
            gaps = rng.sample(range(len(words)), copies - 1)
            return [words, *([*words[:gap], *words[gap + 1 :]] for gap in gaps)]
        shorter = [[word for index, word in enumerate(words) if index % 3 != offset] for offset in range(3)]
        return [words, *shorter][:copies]
