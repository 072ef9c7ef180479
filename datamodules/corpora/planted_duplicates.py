"""Control of sentence selection: documents in which what matters is said several times, in almost the same words."""

import random
from collections.abc import Iterator
from typing import Literal, get_args

from datamodules.corpora.corpus import Corpus, make_document
from datamodules.documents import BadRecord, CorpusError, Record

Variation = Literal["one_word", "every_third_word", "none"]
_COPIES = (4, 3, 2)  # of each sentence that is repeated
_PUNCTUATION = ".,;:!?()'\"`"


class PlantedDuplicates(Corpus):
    """Documents of sentences of many articles, three of which are repeated with variations.

    A document has three sentences with four, three and two versions, and `fillers` sentences that stand there once, all
    from different articles of another corpus, shuffled. The summary is the three repeated sentences. What is said
    most often is nearest to the document as a whole, so a selector that looks at relevance alone takes versions of one
    sentence; one that also looks at redundancy takes all three; one that looks at redundancy alone takes fillers.

    Versions of a sentence lack `one_word` each, and share trigrams; or `every_third_word`, from the first, second or
    third on, and share no trigram with each other. With `none` nothing is repeated: each of the three sentences stands
    there once, and no selector has anything to avoid. With an `opening`, words such as "It should be noted that", all
    three sentences and their versions begin with it: sentences share trigrams that have nothing else in common.

    All draws are a function of the split, the document's number and `seed`.

    Args:
        corpus: where sentences come from, those of 10 to 30 plain words, without their punctuation; references are not
            read.
        variation: how versions of a sentence differ.
        opening: words that all versions begin with.
        fillers: sentences that are not repeated.
        documents: of each split.
        seed: of the draws.

    Raises:
        ValueError: if an argument is out of bounds.
        CorpusError: if a split has too few articles.
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
            raise ValueError(f"corpus.variation is one of {', '.join(get_args(Variation))}; got {variation!r}")
        if fillers < 0 or documents < 1:
            raise ValueError(f"corpus.fillers is at least 0 and documents 1; got {fillers}, {documents}")
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
            raise CorpusError(f"{self.corpus.title(split)}: {problem}; name a larger corpus")
        for number in range(self.documents):
            rng = random.Random(f"{self.seed} {split} {number}")
            yield self._planted(f"{split}-{number}", [rng.choice(a) for a in rng.sample(articles, needed)], rng)

    def _articles(self, split: str) -> Iterator[list[list[str]]]:
        """The sentences of each article that may be taken, as words."""
        for record in self.corpus.records(split):
            article = make_document(record)
            if isinstance(article, BadRecord):
                continue
            sentences = [[word.strip(_PUNCTUATION) for word in text.split()] for text in article.sentences]
            # a token such as a.b() is several words, of which a version would keep a trigram
            plain = [words for words in sentences if 10 <= len(words) <= 30 and all(map(str.isalpha, words))]
            if plain:
                yield plain

    def _planted(self, name: str, sentences: list[list[str]], rng: random.Random) -> Record:
        repeated, fillers = sentences[: len(_COPIES)], sentences[len(_COPIES) :]
        document = list(fillers)
        for words, copies in zip(repeated, _COPIES):
            document += [[*self.opening, *version] for version in self._versions(words, copies, rng)]
        rng.shuffle(document)
        reference = [" ".join([*self.opening, *words]) for words in repeated]
        return Record(name, [[" ".join(words) for words in document]], [reference], name)

    def _versions(self, words: list[str], copies: int, rng: random.Random) -> list[list[str]]:
        """The sentence itself, and versions of it."""
        if self.variation == "none":
            return [words]
        if self.variation == "one_word":
            gaps = rng.sample(range(len(words)), copies - 1)
            return [words, *([*words[:gap], *words[gap + 1 :]] for gap in gaps)]
        shorter = [[word for place, word in enumerate(words) if place % 3 != offset] for offset in range(3)]
        return [words, *shorter][:copies]
