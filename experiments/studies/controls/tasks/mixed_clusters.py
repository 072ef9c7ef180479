"""Clusters of real articles whose paragraphs are shuffled: multi-document input in which one article is asked for."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

from datamodules.corpora.corpus import Corpus, make_document
from datamodules.documents import BadRecord, Record, UserError

Target = Literal["summary", "lead"]


@dataclass(frozen=True)
class _Article:
    """An article and its paragraphs."""

    record: Record
    paragraphs: list[list[str]]


class MixedClusters(Corpus):
    """Shuffled paragraphs of several articles, with the summary of the article that the first paragraph is from.

    Each article of another corpus that is long enough is the target of one document, together with randomly drawn other
    articles. A document has the first `paragraphs` groups of sentences of each article in random order. Its first
    paragraph is one of the target, but not the beginning of the article, so that a model has to find the paragraphs
    that belong with the first one: by their content, or in a graph of their similarity.

    Random choices depend only on the split, the id of the article and `seed`.

    Args:
        corpus: corpus of the articles.
        target: the reference is the `summary` of the article, or its first paragraph (`lead`), which teaches a model
            without pre-training to find the article and to copy.
        articles: number of articles of a document, at least 2.
        paragraphs: number of paragraphs of an article, at least 2; shorter articles are left out.
        sentences: sentences of a paragraph.
        seed: seed of the random choices.

    Raises:
        ValueError: if a number is too small, or the target does not exist.
        UserError: if a split has too few articles.
    """

    def __init__(
        self,
        corpus: Corpus,
        target: Target = "summary",
        articles: int = 3,
        paragraphs: int = 4,
        sentences: int = 2,
        seed: int = 0,
    ) -> None:
        if target not in get_args(Target):
            raise ValueError(f"corpus.target is one of {', '.join(get_args(Target))}; got {target!r}")
        minima = {"articles": (articles, 2), "paragraphs": (paragraphs, 2), "sentences": (sentences, 1)}
        for name, (value, minimum) in minima.items():
            if value < minimum:
                raise ValueError(f"corpus.{name} must be at least {minimum}, got {value}")
        self.corpus, self.target, self.articles = corpus, target, articles
        self.paragraphs, self.sentences, self.seed = paragraphs, sentences, seed

    def splits(self) -> list[str]:
        return self.corpus.splits()

    def fingerprint(self, split: str) -> str:
        numbers = f"{self.articles} {self.paragraphs} {self.sentences} {self.seed}"
        return f"mixed clusters 1 {self.target} {numbers} of {self.corpus.fingerprint(split)}"

    def records(self, split: str) -> Iterator[Record | BadRecord]:
        articles: list[_Article] = []
        for record in self.corpus.records(split):
            document = make_document(record)
            if isinstance(document, BadRecord):
                yield document
            elif len(document.sentences) >= self.paragraphs * self.sentences and document.references:
                record = replace(record, references=document.references)
                articles.append(_Article(record, self._split(document.sentences)))
        if len(articles) < self.articles:
            problem = f"{len(articles)} articles of {self.paragraphs * self.sentences} sentences with a reference"
            raise UserError(f"{self.corpus.title(split)}: {problem}; a document needs {self.articles}")
        for number, article in enumerate(articles):
            rng = random.Random(f"{self.seed} {split} {article.record.id}")
            others = rng.sample(range(len(articles) - 1), self.articles - 1)
            yield self._cluster(article, [articles[other + (other >= number)] for other in others], rng)

    def _split(self, sentences: list[str]) -> list[list[str]]:
        """Return the first paragraphs of an article."""
        starts = range(0, self.paragraphs * self.sentences, self.sentences)
        return [sentences[start : start + self.sentences] for start in starts]

    def _cluster(self, article: _Article, others: list[_Article], rng: random.Random) -> Record:
        """Return the document that asks for an article among others."""
        opening = rng.randrange(1, self.paragraphs)
        rest = [part for index, part in enumerate(article.paragraphs) if index != opening]
        rest += [part for other in others for part in other.paragraphs]
        rng.shuffle(rest)
        parts = [article.paragraphs[opening], *rest]
        references = article.record.references if self.target == "summary" else [article.paragraphs[0]]
        return replace(article.record, parts=parts, references=references)
