"""A word vocabulary, and its extension by a document's own words."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from datamodules.atomic_write import atomic_write
from datamodules.documents import CorpusError
from datamodules.text.words import SENTENCE_ENDS, Tokenizer, detokenize, tokenize

PAD, UNK, START, STOP = range(4)
SPECIALS = ("[PAD]", "[UNK]", "[START]", "[STOP]")


class Vocabulary:
    """The most frequent words of a corpus, four special symbols first.

    Text that spells a special symbol is no special symbol: it is out of vocabulary.

    Args:
        words: without the special symbols, most frequent first.
        tokenizer: how text becomes words, see `tokenize`.
        lowercase: whether case is folded.
    """

    file_name = "vocabulary.json"

    def __init__(self, words: Sequence[str], tokenizer: Tokenizer = "words", lowercase: bool = True) -> None:
        self.tokenizer, self.lowercase = tokenizer, lowercase
        self.words = [*SPECIALS, *words]
        self._ids = {word: i for i, word in enumerate(self.words) if i >= len(SPECIALS)}
        if len(self._ids) != len(words) or not self._ids.keys().isdisjoint(SPECIALS):
            raise ValueError("a vocabulary's words must be different from each other and from the special symbols")

    @classmethod
    def build(cls, texts: Iterable[str], size: int, tokenizer: Tokenizer = "words", lowercase: bool = True) -> Self:
        """The `size` - 4 most frequent words of the texts; ties in alphabetical order."""
        if size <= len(SPECIALS):
            raise ValueError(f"a vocabulary of {size} has no room for words beside {len(SPECIALS)} special symbols")
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(tokenize(text, tokenizer, lowercase))
        for special in SPECIALS:
            counts.pop(special, None)
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return cls([word for word, _ in ranked[: size - len(SPECIALS)]], tokenizer, lowercase)

    def __len__(self) -> int:
        return len(self.words)

    def tokenize(self, text: str) -> list[str]:
        """Words of a text."""
        return tokenize(text, self.tokenizer, self.lowercase)

    def detokenize(self, words: Sequence[str]) -> str:
        """Text of words."""
        return detokenize(words, self.tokenizer)

    def ids(self, words: Iterable[str]) -> list[int]:
        """Vocabulary ids, UNK for what is missing."""
        return [self._ids.get(word, UNK) for word in words]

    def extend(self, words: Sequence[str], size: int) -> tuple[list[int], list[str]]:
        """Ids in the vocabulary extended by these words: the k-th word it lacks is `size` + k.

        Args:
            words: a document.
            size: where the extension starts; the model's V, which may be larger than this vocabulary.

        Returns:
            ids, and the words that were added, in order of appearance.
        """
        added: dict[str, int] = {}
        ids = []
        for word in words:
            i = self._ids.get(word)
            ids.append(size + added.setdefault(word, len(added)) if i is None else i)
        return ids, list(added)

    def target_ids(self, words: Iterable[str], added: Sequence[str], size: int) -> list[int]:
        """Extended ids of a summary's words: UNK for what neither the vocabulary nor the document has."""
        extra = {word: size + k for k, word in enumerate(added)}
        return [self._ids.get(word, extra.get(word, UNK)) for word in words]

    def decode(self, ids: Iterable[int], added: Sequence[str], size: int) -> list[str]:
        """Words of extended ids."""
        return [added[i - size] if i >= size else self.words[i] for i in ids]

    def end_ids(self, marks: Sequence[str] = SENTENCE_ENDS) -> list[int]:
        """Ids of the words that end a sentence."""
        return [self._ids[mark] for mark in marks if mark in self._ids]

    def state(self) -> dict[str, Any]:
        """Plain values that rebuild it: for checkpoints and files."""
        return {"words": self.words[len(SPECIALS) :], "tokenizer": self.tokenizer, "lowercase": self.lowercase}

    @property
    def digest(self) -> str:
        """Short content hash."""
        return hashlib.sha256(json.dumps(self.state()).encode()).hexdigest()[:16]

    def save(self, folder: Path) -> None:
        """Writes `vocabulary.json`, whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / self.file_name, json.dumps(self.state(), ensure_ascii=False, indent=0))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Reads what `save` wrote.

        Raises:
            FileNotFoundError: if it is not there.
            CorpusError: if it is no vocabulary.
        """
        path = folder / cls.file_name
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no vocabulary there; give the `text` folder of a run")
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise CorpusError(f"{path}: no vocabulary ({error}); give the `text` folder of a run") from None
