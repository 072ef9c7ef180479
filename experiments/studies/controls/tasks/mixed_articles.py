"""Control corpus of paragraph graphs: shuffled paragraphs of several articles."""

import random
from collections.abc import Iterator

from datamodules.corpora.corpus import Corpus, make_document
from datamodules.documents import BadRecord, Record, UserError
from experiments.studies.controls.tasks.control_sentences import standard_library

WORDS = ("red", "green", "blue", "white", "black", "brown", "pink", "grey")


class MixedArticles(Corpus):
    """Documents whose summary follows only from the similarity of their paragraphs.

    A document has two paragraphs of each of `articles` articles of another corpus: the first and the last sentences of
    the article. The paragraphs are shuffled, and each begins with the name of a random colour. The summary is the
    colour of the paragraph from the same article as the first paragraph. Positions and colours do not tell which one
    that is; its content does, and so does a similarity graph. A model that reads only the beginnings of paragraphs
    (`data.max_tokens`) needs the graph: without it, the best guess is the most frequent colour of the paragraphs after
    the first.

    Random choices depend only on the split, the number of the document and `seed`.

    Args:
        corpus: corpus of the articles; references are not read. Docstrings of the standard library by default.
        articles: number of articles of a document, at least 2.
        colours: number of colours, 2 to 8.
        sentences: sentences of a paragraph; articles with fewer than two such paragraphs are left out.
        max_train: number of training documents.
        max_eval: number of documents of each other split.
        seed: seed of the random choices.

    Raises:
        ValueError: if a number is too small or too large.
        UserError: if a split has too few articles.
    """

    def __init__(
        self,
        corpus: Corpus | None = None,
        articles: int = 3,
        colours: int = 4,
        sentences: int = 2,
        max_train: int = 8000,
        max_eval: int = 400,
        seed: int = 0,
    ) -> None:
        if not 2 <= colours <= len(WORDS):
            raise ValueError(f"corpus.colours is between 2 and {len(WORDS)}, got {colours}")
        if articles < 2:
            raise ValueError(f"corpus.articles must be at least 2, got {articles}")
        for name, value in (("sentences", sentences), ("max_train", max_train), ("max_eval", max_eval)):
            if value < 1:
                raise ValueError(f"corpus.{name} must be at least 1, got {value}")
        self.corpus, self.articles, self.sentences = corpus or standard_library(), articles, sentences
        self.colours, self.max_train, self.max_eval, self.seed = colours, max_train, max_eval, seed

    def splits(self) -> list[str]:
        return self.corpus.splits()

    def fingerprint(self, split: str) -> str:
        size = self.max_train if split == "train" else self.max_eval
        numbers = f"{self.articles} {self.colours} {self.sentences} {size} {self.seed}"
        return f"mixed articles 1 {numbers} of {self.corpus.fingerprint(split)}"

    def records(self, split: str) -> Iterator[Record]:
        pairs = list(self._paragraph_pairs(split))
        if len(pairs) < self.articles:
            problem = f"{len(pairs)} articles of {2 * self.sentences} sentences, a document needs {self.articles}"
            raise UserError(f"{self.corpus.title(split)}: {problem}; name a larger corpus or lower corpus.sentences")
        for number in range(self.max_train if split == "train" else self.max_eval):
            rng = random.Random(f"{self.seed} {split} {number}")
            yield self._mixed(f"{split}-{number}", rng.sample(pairs, self.articles), rng)

    def _paragraph_pairs(self, split: str) -> Iterator[tuple[list[str], list[str]]]:
        """Yield the first and the last sentences of each article that is long enough."""
        for record in self.corpus.records(split):
            article = make_document(record)
            if isinstance(article, BadRecord) or len(article.sentences) < 2 * self.sentences:
                continue
            yield article.sentences[: self.sentences], article.sentences[-self.sentences :]

    def _mixed(self, name: str, pairs: list[tuple[list[str], list[str]]], rng: random.Random) -> Record:
        paragraphs = [(article, sentences) for article, pair in enumerate(pairs) for sentences in pair]
        rng.shuffle(paragraphs)
        colours = rng.choices(WORDS[: self.colours], k=len(paragraphs))
        first = paragraphs[0][0]
        partner = next(index for index, (article, _) in enumerate(paragraphs) if index and article == first)
        parts = [
            [f"{colour} {sentences[0]}", *sentences[1:]] for colour, (_, sentences) in zip(colours, paragraphs)
        ]
        return Record(name, parts, [[colours[partner]]], name)
