"""Word vocabulary, and its extension by the OOV words of a document."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from datamodules.atomic_write import atomic_write
from datamodules.documents import UserError
from datamodules.text.language import language_of
from datamodules.text.lines import load_json
from datamodules.text.words import SENTENCE_ENDS, WordTokenization

PAD, UNK, START, STOP = range(4)
SPECIALS = ("[PAD]", "[UNK]", "[START]", "[STOP]")


class Vocabulary:
    """The most frequent words of a corpus, after four special symbols.

    Text that spells a special symbol is out of vocabulary. The argument `words` has the words without special symbols,
    most frequent first; `tokenizer` is `words` or `whitespace`, see `text.words.tokenize`.
    """

    file_name = "vocabulary.json"
    stop = STOP

    def __init__(
        self, words: Sequence[str], tokenizer: WordTokenization = "words", lowercase: bool = True, language: str = "en"
    ) -> None:
        self.tokenizer = tokenizer
        self.lowercase = lowercase
        self.language = language_of(language)
        self.words = [*SPECIALS, *words]  # word of each id
        # ids of the words of texts: without special symbols, so that a text which spells "[PAD]" has an OOV word
        self._ids = {word: i for i, word in enumerate(self.words) if i >= len(SPECIALS)}
        if len(self._ids) != len(words) or not self._ids.keys().isdisjoint(SPECIALS):
            raise ValueError("the words of a vocabulary must be distinct, and none may be a special symbol")

    @classmethod
    def build(
        cls, texts: Iterable[str], size: int, tokenizer: WordTokenization = "words", lowercase: bool = True,
        language: str = "en",
    ) -> Self:  # fmt: skip
        """Build the vocabulary of four special symbols and the `size` - 4 most frequent words, ties alphabetically."""
        if size <= len(SPECIALS):
            raise ValueError(f"a vocabulary of {size} has only the {len(SPECIALS)} special symbols; raise its size")
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(language_of(language).tokenize(text, tokenizer, lowercase))
        for special in SPECIALS:
            counts.pop(special, None)  # "[PAD]" in a text is not the symbol
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return cls([word for word, _ in ranked[: size - len(SPECIALS)]], tokenizer, lowercase, language)

    def __len__(self) -> int:
        return len(self.words)

    def tokenize(self, text: str) -> list[str]:
        """Split a text into words."""
        return self.language.tokenize(text, self.tokenizer, self.lowercase)

    def detokenize(self, words: Sequence[str]) -> str:
        """Join words to a text."""
        return self.language.detokenize(words, self.tokenizer)

    def sentences(self, words: Sequence[str]) -> list[str]:
        """Return the words of a generated text as readable sentences."""
        return [self.detokenize(sentence) for sentence in self.language.sentences_of(words)]

    def extend(self, words: Sequence[str], size: int) -> tuple[list[int], list[str]]:
        """Return the ids of the words of a document, and its out-of-vocabulary (OOV) words in order of appearance.

        The k-th distinct OOV word (from 0) has id `size` + k. `size` is the vocabulary size of the model, which may be
        larger than the vocabulary of a small corpus.
        """
        oov_words: dict[str, int] = {}  # word -> k
        ids = []
        for word in words:
            id = self._ids.get(word)
            if id is None:
                id = size + oov_words.setdefault(word, len(oov_words))
            ids.append(id)
        return ids, list(oov_words)

    def target_ids(self, words: Iterable[str], oov_words: Sequence[str], size: int) -> list[int]:
        """Return the ids of the words of a summary, `oov_words[k]` as `size` + k; UNK for all other OOV words."""
        oov_ids = {word: size + k for k, word in enumerate(oov_words)}
        return [self._ids.get(word, oov_ids.get(word, UNK)) for word in words]

    def decode(self, ids: Iterable[int], oov_words: Sequence[str], size: int) -> list[str]:
        """Return the words of ids, where id `size` + k is `oov_words[k]`."""
        return [oov_words[i - size] if i >= size else self.words[i] for i in ids]

    def end_ids(self, marks: Sequence[str] = SENTENCE_ENDS) -> list[int]:
        """Return the ids of the marks that end a sentence; marks that are not in the vocabulary are left out."""
        if tuple(marks) == SENTENCE_ENDS:  # the default means the marks of the language
            marks = self.language.sentence_ends
        return [self._ids[mark] for mark in marks if mark in self._ids]

    def state(self) -> dict[str, Any]:
        """Return the state for checkpoints and files, as plain values."""
        state = {"words": self.words[len(SPECIALS) :], "tokenizer": self.tokenizer, "lowercase": self.lowercase}
        return state | self.language.setting

    def save(self, folder: Path) -> None:
        """Write `vocabulary.json` atomically."""
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / self.file_name, json.dumps(self.state(), ensure_ascii=False))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load a vocabulary from the folder to which `save` wrote it.

        Raises:
            FileNotFoundError: if there is no `vocabulary.json`.
            UserError: if it is not a vocabulary.
        """
        path = folder / cls.file_name
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file; give the `text` folder of a run")
        try:
            return cls(**load_json(path.read_text(encoding="utf-8-sig")))  # with or without a byte order mark
        except (ValueError, TypeError) as error:
            raise UserError(f"{path}: not a vocabulary ({error}); give the `text` folder of a run") from None
