"""Text for encoders that read sentences between head and end symbols: [CLS] .. [SEP], or <s> .. </s>."""

from collections.abc import Sequence
from typing import NamedTuple, Self

from tokenizers import Tokenizer

from datamodules.documents import CorpusError
from datamodules.text.subword_text import SPECIALS, SubwordText
from datamodules.text.subwords import encoder_path

BERT_SPECIALS = ("[CLS]", "[PAD]", "[SEP]")


class Pieces(NamedTuple):
    """Sentences as tokens: [CLS] sentence [SEP] [CLS] sentence [SEP] .., a long sentence as several pieces.

    Attributes:
        tokens: of all pieces.
        starts: the first token of each piece.
        owners: the sentence that each piece is of.
        sentences: how many sentences were read.
    """

    tokens: list[int]
    starts: list[int]
    owners: list[int]
    sentences: int


class EncoderText(SubwordText):
    """Subwords of a pretrained encoder, or byte-level ones that are trained on a corpus.

    Args:
        tokenizer: of the `tokenizers` library, with BERT's special symbols or RoBERTa's.

    Attributes:
        start, pad, stop: ids of the head symbol, of padding and of the end symbol.

    Raises:
        CorpusError: if it lacks a special symbol.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        for names in (BERT_SPECIALS, SPECIALS[:3]):
            ids = [tokenizer.token_to_id(name) for name in names]
            if None not in ids:
                break
        else:
            raise CorpusError("the tokenizer has neither [CLS], [PAD], [SEP] nor <s>, <pad>, </s>; take another one")
        self.start, self.pad, self.stop = ids
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        self.tokenizer = tokenizer

    @classmethod
    def of_checkpoint(cls, name: str) -> Self:
        """The tokenizer of a pretrained encoder: `minilm`, a Hugging Face name (downloaded if it is not there), or a
        folder."""
        return super().of_checkpoint(encoder_path(name))

    def wrapped(self, ids: Sequence[int], piece: int) -> list[list[int]]:
        """Tokens between a head and an end symbol; several such pieces where there are more than `piece`."""
        pieces = [ids[at : at + piece] for at in range(0, len(ids), piece)] or [[]]
        return [[self.start, *part, self.stop] for part in pieces]

    def pieces(self, sentences: Sequence[str], piece: int, most: int | None = None) -> Pieces:
        """Sentences as tokens.

        Args:
            sentences: of a document.
            piece: tokens between two head symbols, at most.
            most: tokens of the document; the whole sentences behind them are not read, the first one always is. None
                reads all.
        """
        tokens, starts, owners, count = [], [], [], 0
        for number, sentence in enumerate(sentences):
            wrapped = self.wrapped(self(sentence)[0], piece)
            if most is not None and number and len(tokens) + sum(map(len, wrapped)) > most:
                break
            for part in wrapped:
                starts.append(len(tokens))
                owners.append(number)
                tokens += part
            count += 1
        return Pieces(tokens, starts, owners, count)


def by_token(length: int, starts: Sequence[int], owners: Sequence[int]) -> tuple[list[int], list[int]]:
    """The sentence of each token of `Pieces`, and 1 for each head symbol."""
    owner = [number for number, start, end in zip(owners, starts, [*starts[1:], length]) for _ in range(start, end)]
    heads = [0] * length
    for start in starts:
        heads[start] = 1
    return owner, heads
