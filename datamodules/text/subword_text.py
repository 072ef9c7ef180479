"""Byte-level BPE as a `Text`: trained on a corpus, or a checkpoint's own; ids with the characters they stand for."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from datamodules.documents import CorpusError
from datamodules.text.offsets import encodable
from datamodules.text.words import SENTENCE_ENDS

START, PAD, STOP, UNK = "<s>", "<pad>", "</s>", "<unk>"
SPECIALS = (START, PAD, STOP, UNK)  # in the order of BART's and LED's ids
BERTS = ("[CLS]", "[PAD]", "[SEP]")  # what BERT's tokenizers have in the place of the first three
PARAGRAPH, SENTENCE = "<p>", "<q>"  # separators, of texts that were made with them
SMALLEST = len(SPECIALS) + 256  # every byte has a token


class SubwordText:
    """Subwords of any text, without unknown ones.

    Text that spells a special symbol is no special symbol.

    Args:
        tokenizer: of the `tokenizers` library, with the special symbols <s>, <pad> and </s>, or BERT's.

    Attributes:
        start, pad, stop: ids of the special symbols.
        paragraph, sentence: ids of the separators; None where there are none.

    Raises:
        CorpusError: if it lacks a special symbol.
    """

    file_name = "tokenizer.json"
    paragraph: int | None = None
    sentence: int | None = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        ids = [tokenizer.token_to_id(symbol) for symbol in SPECIALS[:3]]
        if ids == [None] * 3:
            ids = [tokenizer.token_to_id(symbol) for symbol in BERTS]
        if None in ids:
            raise CorpusError(f"the tokenizer has no {SPECIALS[ids.index(None)]}; take one of BART's or LED's kind")
        self.start, self.pad, self.stop = ids
        self.paragraph, self.sentence = map(tokenizer.token_to_id, (PARAGRAPH, SENTENCE))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        self.tokenizer = tokenizer

    @classmethod
    def build(cls, texts: Iterable[str], size: int, separators: bool = False) -> Self:
        """Merges learned from texts until there are `size` tokens, or no pair occurs twice.

        Args:
            texts: to learn from.
            size: of the vocabulary, special symbols included.
            separators: whether there are symbols between paragraphs and between sentences.

        Raises:
            ValueError: if the size has no room for the bytes.
        """
        specials = [*SPECIALS, *([PARAGRAPH, SENTENCE] if separators else [])]
        least = 256 + len(specials)
        if size < least:
            raise ValueError(f"a byte-level vocabulary of {size}: it has at least {least}, one a byte and specials")
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        # no post-processor: offsets count a token's space in, so that a space within an EDU is part of it too
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=size, min_frequency=2, special_tokens=specials, initial_alphabet=sorted(alphabet),
            show_progress=False,
        )  # fmt: skip
        tokenizer.train_from_iterator(map(encodable, texts), trainer)
        return cls(tokenizer)

    @classmethod
    def of_checkpoint(cls, name: str, separators: bool = False) -> Self:
        """The tokenizer of a pretrained model: a Hugging Face name (downloaded if it is not there) or a folder.

        Separators get ids behind the model's own, which its embedding lacks.

        Raises:
            CorpusError: if it gives no offsets or lacks a special symbol.
        """
        from transformers import AutoTokenizer  # takes seconds to load

        found = AutoTokenizer.from_pretrained(name)
        if not found.is_fast:
            raise CorpusError(f"the tokenizer of {name} gives no character offsets; it needs a tokenizer.json")
        if separators:
            found.backend_tokenizer.add_special_tokens([PARAGRAPH, SENTENCE])
        return cls(found.backend_tokenizer)

    def __len__(self) -> int:
        return self.tokenizer.get_vocab_size()

    def __call__(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids without special symbols, and the [start, end) in characters that each stands for."""
        encoded = self.tokenizer.encode(encodable(text), add_special_tokens=False)
        return encoded.ids, encoded.offsets

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special symbols left out; ids that have no token too."""
        return self.tokenizer.decode([i for i in ids if i < len(self)], skip_special_tokens=True).strip()

    def end_ids(self, marks: Sequence[str] = SENTENCE_ENDS) -> list[int]:
        """Ids of the tokens whose text ends with a mark that ends a sentence, and of the separator of sentences."""
        ends = [i for i in range(len(self)) if self.tokenizer.decode([i]).strip().endswith(tuple(marks))]
        return ends if self.sentence is None else sorted({*ends, self.sentence})

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, plain values."""
        return {"tokenizer": self.tokenizer.to_str()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The text that `state` came from."""
        return cls(Tokenizer.from_str(state["tokenizer"]))

    def save(self, folder: Path) -> None:
        """Writes tokenizer.json, which Hugging Face's tokenizers load."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / self.file_name).write_text(self.tokenizer.to_str(pretty=True), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """What `save` wrote.

        Raises:
            CorpusError: if there is none, or it is broken.
        """
        path = Path(folder) / cls.file_name
        if not path.is_file():
            raise CorpusError(f"{path}: no such file; give --data.text a folder with a {cls.file_name}")
        try:
            text = path.read_text(encoding="utf-8")
            json.loads(text)
            return cls(Tokenizer.from_str(text))
        except CorpusError:
            raise
        except Exception as error:  # the library raises plain exceptions
            raise CorpusError(f"{path}: no tokenizer: {error}") from None
