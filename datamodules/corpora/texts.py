"""Documents that are at hand as strings."""

import hashlib
import json
from collections.abc import Iterable, Iterator

from datamodules.corpora.corpus import Corpus
from datamodules.corpora.fields import Fields, Paragraphs
from datamodules.documents import Record


class Texts(Corpus):
    """Texts to summarize, in one split, `test`, without references.

    Args:
        texts: id and text of each document.
        paragraphs: what parts a text: blank lines, the ends of lines, or nothing.
    """

    def __init__(self, texts: Iterable[tuple[str, str]], paragraphs: Paragraphs = "blank_line") -> None:
        self.texts = list(texts)
        self.fields = Fields(document="text", summary=None, paragraphs=paragraphs)

    def splits(self) -> list[str]:
        return ["test"]

    def records(self, split: str) -> Iterator[Record]:
        for name, text in self.texts:
            yield self.fields.record({"id": name, "text": text}, f"text {name!r}", name)

    def fingerprint(self, split: str) -> str:
        content = json.dumps([self.texts, self.fields.paragraphs])
        return f"texts {hashlib.sha256(content.encode()).hexdigest()}"
