"""Subword tokenizer: byte-level BPE trained on a corpus, or that of a pretrained model."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from datamodules.documents import UserError
from datamodules.text.lines import load_json
from datamodules.text.offsets import encodable
from datamodules.text.subwords import pretrained_tokenizer
from datamodules.text.words import SENTENCE_ENDS

START, PAD, STOP, UNK = "<s>", "<pad>", "</s>", "<unk>"
SPECIALS = (START, PAD, STOP, UNK)  # in the order of BART's and LED's ids
BERTS = ("[CLS]", "[PAD]", "[SEP]")  # the first three of them in BERT's tokenizers
PARAGRAPH, SENTENCE = "<p>", "<q>"  # optional separators
SMALLEST = len(SPECIALS) + 256  # one token for each byte


class SubwordTokenizer:
    """Subword tokenizer of any text, without unknown tokens.

    Text that spells a special symbol is not encoded as that symbol.

    Args:
        tokenizer: tokenizer of the `tokenizers` library, with <s>, <pad> and </s> or the special symbols of BERT.

    Attributes:
        start, pad, stop: ids of the special symbols.
        paragraph, sentence: ids of the separators, or None.

    Raises:
        UserError: if a special symbol is missing.
    """

    file_name = "tokenizer.json"
    symbols: ClassVar = (SPECIALS[:3], BERTS)  # names of the special symbols; the first that a tokenizer has count
    separators: ClassVar = False  # whether `build` and `of_checkpoint` add symbols of paragraphs and sentences
    paragraph: int | None = None
    sentence: int | None = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        ids_by_names = ([tokenizer.token_to_id(symbol) for symbol in names] for names in self.symbols)
        ids = next((ids for ids in ids_by_names if None not in ids), None)
        if ids is None:
            missing = next(symbol for symbol in SPECIALS if tokenizer.token_to_id(symbol) is None)
            raise UserError(f"the tokenizer has no {missing}; give one like that of BART, LED or BERT")
        self.start, self.pad, self.stop = ids
        self.paragraph, self.sentence = map(tokenizer.token_to_id, (PARAGRAPH, SENTENCE))
        self._use(tokenizer)

    def _use(self, tokenizer: Tokenizer) -> None:
        """Encode whole texts, without padding, and special symbols within texts as text."""
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        self.backend = tokenizer

    @classmethod
    def build(cls, texts: Iterable[str], size: int) -> Self:
        """Train a byte-level BPE until there are `size` tokens, or no pair occurs twice.

        Raises:
            ValueError: if `size` is too small for all bytes.
        """
        specials = [*SPECIALS, *([PARAGRAPH, SENTENCE] if cls.separators else [])]
        min_size = 256 + len(specials)
        if size < min_size:
            raise ValueError(f"a byte-level vocabulary of {size}: it needs at least {min_size}, for bytes and specials")
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        # Without a post-processor, offsets include the space before a token, so that spaces inside EDUs are covered.
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=size, min_frequency=2, special_tokens=specials, initial_alphabet=sorted(alphabet),
            show_progress=False,
        )  # fmt: skip
        tokenizer.train_from_iterator(map(encodable, texts), trainer)
        return cls(tokenizer)

    @classmethod
    def of_checkpoint(cls, name: str) -> Self:
        """Load the tokenizer of a pretrained model: a Hugging Face name (downloaded if needed), a folder, or `minilm`.

        Separators get ids after those of the model, which its embedding lacks.

        Raises:
            UserError: if it provides no offsets or lacks a special symbol.
        """
        backend = pretrained_tokenizer(name).backend_tokenizer
        if cls.separators:
            backend.add_special_tokens([PARAGRAPH, SENTENCE])
        return cls(backend)

    def __len__(self) -> int:
        return self.backend.get_vocab_size()

    def __call__(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of a text without special symbols, and (start, end) characters of each token."""
        encoded = self.backend.encode(encodable(text), add_special_tokens=False)
        return encoded.ids, encoded.offsets

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids without special symbols and ids outside the vocabulary."""
        return self.backend.decode([i for i in ids if i < len(self)], skip_special_tokens=True).strip()

    def end_ids(self, marks: Sequence[str] = SENTENCE_ENDS) -> list[int]:
        """Return the ids of tokens that end with a sentence-final mark, and of the sentence separator."""
        ends = [i for i in range(len(self)) if self.backend.decode([i]).strip().endswith(tuple(marks))]
        return ends if self.sentence is None else sorted({*ends, self.sentence})

    def state(self) -> dict[str, Any]:
        """Return the state for checkpoints, as plain values."""
        return {"tokenizer": self.backend.to_str()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Restore a tokenizer from its `state`."""
        return cls(Tokenizer.from_str(state["tokenizer"]))

    def save(self, folder: Path) -> None:
        """Write tokenizer.json, which Hugging Face tokenizers can load."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / self.file_name).write_text(self.backend.to_str(), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load what `save` wrote.

        Raises:
            UserError: if the file is missing or invalid.
        """
        path = Path(folder) / cls.file_name
        if not path.is_file():
            raise UserError(f"{path}: no such file; give --data.tokenizer_dir a folder with a {cls.file_name}")
        try:
            text = path.read_text(encoding="utf-8-sig")
            load_json(text)
            return cls(Tokenizer.from_str(text))
        except UserError:
            raise
        except Exception as error:  # the library raises plain exceptions
            raise UserError(f"{path}: not a tokenizer: {error}") from None
