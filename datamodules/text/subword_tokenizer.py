"""Subword tokenizer: byte-level BPE trained on a corpus, or that of a pretrained model."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from datamodules.documents import UserError
from datamodules.text.language import close_up
from datamodules.text.lines import encodable, load_json
from datamodules.text.subwords import pretrained_tokenizer
from datamodules.text.words import SENTENCE_ENDS

START, PAD, STOP, UNK = "<s>", "<pad>", "</s>", "<unk>"
SPECIALS = (START, PAD, STOP, UNK)  # in the order of BART's and LED's ids
BERTS = ("[CLS]", "[PAD]", "[SEP]")  # the first three of them in BERT's tokenizers
PARAGRAPH, SENTENCE = "<p>", "<q>"  # optional separators
SMALLEST = len(SPECIALS) + 256  # one token for each byte


class SubwordTokenizer:
    """Subword tokenizer of any text, without unknown tokens.

    Text that spells a special symbol is not encoded as that symbol. `tokenizer` is one of the `tokenizers` library,
    with <s>, <pad> and </s> or the special symbols of BERT, whose ids are `start`, `pad` and `stop`.

    Raises:
        UserError: if a special symbol is missing.
    """

    file_name = "tokenizer.json"
    symbols: ClassVar = (BERTS, SPECIALS[:3])  # (start, padding, stop); the first triple that a tokenizer has is used
    separators: ClassVar[tuple[str, ...]] = ()  # further special symbols that `build` and `of_checkpoint` add
    mask_symbols: ClassVar[tuple[str, ...]] = ()  # special symbols that `build` adds as the last tokens

    def __init__(self, tokenizer: Tokenizer) -> None:
        for names in self.symbols:
            ids = [tokenizer.token_to_id(symbol) for symbol in names]
            if None not in ids:
                break
        else:  # no set is complete
            raise UserError(f"the tokenizer has no {names[ids.index(None)]}; give one like that of BART")
        self.start, self.pad, self.stop = ids
        self.paragraph = tokenizer.token_to_id(PARAGRAPH)  # id of the separator of paragraphs, or None
        self.sentence = tokenizer.token_to_id(SENTENCE)  # id of the separator of sentences, or None
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # special symbols in a text are text
        self.backend = tokenizer

    @classmethod
    def build(cls, texts: Iterable[str], size: int) -> Self:
        """Train a byte-level BPE until there are `size` tokens, or no pair of tokens occurs twice.

        Raises:
            ValueError: if `size` is too small for all bytes.
        """
        num_masks = len(cls.mask_symbols)
        min_size = SMALLEST + len(cls.separators) + num_masks  # every byte is a token, so that no text needs <unk>
        if size < min_size:
            raise ValueError(f"a byte-level vocabulary of {size}: it needs at least {min_size}, for bytes and specials")
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        # No post-processor: it would trim spaces from offsets, and RSTformer would find no EDU for a token of spaces.
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())  # in the same order in every process
        options = {"special_tokens": [*SPECIALS, *cls.separators], "initial_alphabet": alphabet}
        trainer = trainers.BpeTrainer(vocab_size=size - num_masks, min_frequency=2, show_progress=False, **options)
        tokenizer.train_from_iterator(map(encodable, texts), trainer)  # replaces lone surrogates, an error to it
        tokenizer.add_special_tokens(list(cls.mask_symbols))
        return cls(tokenizer)

    @classmethod
    def of_checkpoint(cls, name: str) -> Self:
        """Load the tokenizer of a pretrained model: a Hugging Face name (downloaded if needed), a folder, or `minilm`.

        If the class has `separators`, <p> and <q> get new ids at the end, for which the model has no embeddings yet.

        Raises:
            UserError: if the tokenizer provides no offsets or lacks a special symbol.
        """
        backend = pretrained_tokenizer(name).backend_tokenizer
        backend.add_special_tokens(list(cls.separators))
        return cls(backend)

    def __len__(self) -> int:
        return self.backend.get_vocab_size()

    def __call__(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of the tokens of a text, without special symbols, and their (start, end) characters."""
        encoded = self.backend.encode(encodable(text), add_special_tokens=False)
        return encoded.ids, encoded.offsets

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids without special symbols; ids that a model has beyond the vocabulary are skipped."""
        return close_up(self.backend.decode([i for i in ids if i < len(self)], skip_special_tokens=True).strip())

    def end_ids(self, marks: Sequence[str] = SENTENCE_ENDS) -> list[int]:
        """Return the ids of tokens that end with one of `marks`, and the id of the separator of sentences, if any."""
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
        """Load a tokenizer from the folder to which `save` wrote it.

        Raises:
            UserError: if the file is missing or invalid.
        """
        path = Path(folder) / cls.file_name
        if not path.is_file():
            raise UserError(f"{path}: no such file; give --data.tokenizer_dir a folder with a {cls.file_name}")
        try:
            text = path.read_text(encoding="utf-8-sig")  # with or without a byte order mark
            load_json(text)  # raises if the text is nested too deeply to parse
            return cls(Tokenizer.from_str(text))
        except UserError:  # of the constructor
            raise
        except Exception as error:  # the library raises no narrower class
            raise UserError(f"{path}: not a tokenizer: {error}") from None


class Pieces(NamedTuple):
    """Tokens of sentences: [CLS] sentence [SEP] [CLS] sentence [SEP] ..; a long sentence is split into pieces."""

    tokens: list[int]  # ids of all pieces
    starts: list[int]  # index of the first token of each piece
    owners: list[int]  # index of the sentence that each piece belongs to
    sentences: int  # number of sentences that were read


class EncoderTokenizer(SubwordTokenizer):
    """Tokenizer of a pretrained encoder, or byte-level BPE trained on a corpus."""

    def wrapped(self, ids: Sequence[int], piece: int) -> list[list[int]]:
        """Split ids into pieces of at most `piece` tokens, each between a start and an end symbol."""
        pieces = [ids[start : start + piece] for start in range(0, len(ids), piece)] or [[]]  # one piece without tokens
        return [[self.start, *ids_of_piece, self.stop] for ids_of_piece in pieces]

    def pieces(self, sentences: Sequence[str], piece: int, max_tokens: int | None = None) -> Pieces:
        """Tokenize sentences in pieces of at most `piece` tokens, not counting special symbols.

        Sentences are left out from the first one with which the total would exceed `max_tokens` (with special symbols),
        but the first sentence is always read.
        """
        tokens, starts, owners = [], [], []
        num_sentences = 0
        for number, sentence in enumerate(sentences):
            ids, _ = self(sentence)  # without offsets
            wrapped = self.wrapped(ids, piece)  # ids of each piece, with special symbols
            total = len(tokens) + sum(map(len, wrapped))
            if max_tokens is not None and number > 0 and total > max_tokens:
                break
            for ids_of_piece in wrapped:
                starts.append(len(tokens))
                owners.append(number)  # sentence of the piece
                tokens += ids_of_piece
            num_sentences += 1
        return Pieces(tokens, starts, owners, num_sentences)


def by_token(length: int, starts: Sequence[int], owners: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the sentence of each of `length` tokens, and 1 if it begins a piece; `owners`: sentence of each piece."""
    sentence_of_token: list[int] = []
    for sentence, start, end in zip(owners, starts, [*starts[1:], length]):  # a piece ends where the next one starts
        sentence_of_token += [sentence] * (end - start)
    is_first = [0] * length
    for start in starts:
        is_first[start] = 1
    return sentence_of_token, is_first


MASKS = ("<mask_1>", "<mask>", "<extra_id_0>", "[MASK]")  # of PEGASUS (for sentences), BART and LED, T5, BERT


class MaskingTokenizer(SubwordTokenizer):
    """Tokenizer with a mask symbol, trained on the corpus, or that of a pretrained PEGASUS, BART or T5.

    Without a <s>, decoding starts with <pad>, as in PEGASUS and T5. `mask` is the id of the symbol that replaces a
    sentence, or None; `opening` has the ids before a document.

    Raises:
        UserError: if <pad> or </s> is missing.
    """

    symbols = (BERTS, SPECIALS[:3], ("<pad>", "<pad>", "</s>"))  # PEGASUS and T5 have no <s>
    mask_symbols = ("<mask>",)

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self.opening = [] if self.start == self.pad else [self.start]
        masks = (tokenizer.token_to_id(name) for name in MASKS)
        self.mask = next((mask for mask in masks if mask is not None), None)  # the first that the tokenizer has

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids without special symbols; <n>, the line break of PEGASUS, becomes a space."""
        return " ".join(super().decode(ids).replace("<n>", " ").split())
