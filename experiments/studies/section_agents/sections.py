"""Sections of SumPubMed's articles as parts of agents, and as target the beginnings of its abstracts' sections."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from datamodules.communicating_agents import CommunicatingAgentsBatch, CommunicatingAgentsData
from datamodules.documents import Document, UserError
from datamodules.text.vocabulary import Vocabulary
from datamodules.text.words import tokenize
from experiments.studies.discourse_extraction.documents import read_records
from experiments.studies.discourse_extraction.long_documents import HEADINGS

PART_WORDS, TARGET_WORDS, MAX_TARGET = 128, 36, 110
SECTIONS = {
    "background": ("background",),
    "results": ("results", "results and discussion"),
    "conclusions": ("conclusions", "conclusion"),
}


class Article(NamedTuple):
    """An article with the beginnings of its three sections, and the beginnings of the sections of its abstract.

    Attributes:
        id: id of the article.
        parts: words of each section, separated by spaces.
        target: words of the target, separated by spaces.
    """

    id: str
    parts: list[str]
    target: str


def sections_of(text: str, headings: Sequence[str] | set[str]) -> dict[str, str]:
    """Return the text below each heading, which is a line of its own; text before the first has an empty heading."""
    lines: dict[str, list[str]] = {}
    heading = ""
    for line in text.split("\n"):
        if line.strip().lower() in headings:
            heading = line.strip().lower()
        else:
            lines.setdefault(heading, []).append(line)
    return {heading: " ".join(texts) for heading, texts in lines.items()}


def beginnings(text: str, headings: Sequence[str] | set[str], words: int) -> list[str]:
    """Return the first words of background, results and conclusions, tokenized; empty for a missing section."""
    texts = sections_of(text, headings)
    chosen = (next((texts[name] for name in names if texts.get(name, "").strip()), "") for names in SECTIONS.values())
    return [" ".join(tokenize(section)[:words]) for section in chosen]


def read_articles(file: Path, number: int | None = None) -> list[Article]:
    """Return the articles of a file of SumPubMed in which no section is missing, at most `number`.

    Raises:
        UserError: if a record is none of SumPubMed, or no article has all sections.
    """
    articles = []
    for row in read_records(file):
        if missing := {"id", "document", "long_abstract"} - row.keys():
            raise UserError(f"{file}: a record has no {min(missing)!r}; name a file of SumPubMed")
        parts = beginnings(row["document"], HEADINGS, PART_WORDS)
        target = beginnings(row["long_abstract"], SECTIONS.keys(), TARGET_WORDS)
        if all(parts) and all(target):
            articles.append(Article(row["id"], parts, " ".join(target)))
    if not articles:
        raise UserError(f"{file}: no article has background, results and conclusions; name a file of SumPubMed")
    return articles[:number]


class Corpus:
    """Encoded articles, and batches of them for each number of agents.

    Args:
        train, val: articles.
        vocab_size: size of the vocabulary, made from the training articles.

    Attributes:
        train, val: encoded articles.
        exchanged: validation articles, each with the sections of the next one.
        lessons: training articles whose target is the beginnings of the sections themselves, to learn copying.
    """

    def __init__(self, train: list[Article], val: list[Article], vocab_size: int) -> None:
        vocabulary = Vocabulary.build(
            (text for row in train for text in (*row.parts, row.target)), vocab_size, "whitespace"
        )
        self.data = {}
        for agents in (1, len(SECTIONS)):
            data = CommunicatingAgentsData(
                None, vocab_size=vocab_size, agents=agents, split="paragraphs", max_source=1000, max_target=MAX_TARGET,
                tokenizer="whitespace",
            )  # fmt: skip
            data.tokenizer = vocabulary
            self.data[agents] = data
        self.train = [self._encode(article) for article in train]
        self.val = [self._encode(article) for article in val]
        following = [*val[1:], val[0]]
        self.exchanged = [self._encode(row._replace(parts=other.parts)) for row, other in zip(val, following)]
        self.lessons = [_lesson(row) for row in self.train]

    def _encode(self, article: Article) -> dict:
        document = Document(article.id, [[part] for part in article.parts], [[article.target]])
        row = self.data[len(SECTIONS)].encode(document)
        return row | {"id": document.id, "references": document.references}

    def batch(self, rows: list[dict], agents: int) -> CommunicatingAgentsBatch:
        """Return a batch of encoded articles for a number of agents."""
        return self.data[agents].collate(rows)


def _lesson(row: dict) -> dict:
    target, start = [], 0
    for words in row["paragraphs"]:
        target += row["source"][start : start + min(words, TARGET_WORDS)]
        start += words
    return row | {"target": [*target, row["target"][-1]]}
