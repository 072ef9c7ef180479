"""Tokenizer of encoders that read sentences between special symbols: [CLS] .. [SEP], or <s> .. </s>."""

from collections.abc import Sequence
from typing import NamedTuple

from datamodules.text.subword_tokenizer import BERTS, SPECIALS, SubwordTokenizer


class Pieces(NamedTuple):
    """Tokens of sentences: [CLS] sentence [SEP] [CLS] sentence [SEP] ..; a long sentence is split into pieces."""

    tokens: list[int]  # ids of all pieces
    starts: list[int]  # index of the first token of each piece
    owners: list[int]  # index of the sentence that each piece belongs to
    sentences: int  # number of sentences that were read


class EncoderTokenizer(SubwordTokenizer):
    """Tokenizer of a pretrained encoder, or byte-level BPE trained on a corpus."""

    symbols = (BERTS, SPECIALS[:3])  # whose ids are `start`, `pad` and `stop`

    def wrapped(self, ids: Sequence[int], piece: int) -> list[list[int]]:
        """Split ids into pieces of at most `piece` tokens, each between a start and an end symbol."""
        pieces = [ids[at : at + piece] for at in range(0, len(ids), piece)] or [[]]
        return [[self.start, *part, self.stop] for part in pieces]

    def pieces(self, sentences: Sequence[str], piece: int, max_tokens: int | None = None) -> Pieces:
        """Tokenize sentences.

        Args:
            piece: maximal number of tokens of a piece, without special symbols.
            max_tokens: maximal number of tokens in all; the first sentence that exceeds it and all following ones are
                left out, but never the very first. None reads all.
        """
        tokens, starts, owners, count = [], [], [], 0
        for number, sentence in enumerate(sentences):
            wrapped = self.wrapped(self(sentence)[0], piece)
            if max_tokens is not None and number and len(tokens) + sum(map(len, wrapped)) > max_tokens:
                break
            for part in wrapped:
                starts.append(len(tokens))
                owners.append(number)
                tokens += part
            count += 1
        return Pieces(tokens, starts, owners, count)


def by_token(length: int, starts: Sequence[int], owners: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the sentence of each token of `Pieces`, and a list with 1 at the first token of each piece."""
    owner: list[int] = []
    for number, start, end in zip(owners, starts, [*starts[1:], length]):
        owner += [number] * (end - start)
    heads = [0] * length
    for start in starts:
        heads[start] = 1
    return owner, heads
