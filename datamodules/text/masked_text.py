"""Subwords with a mask: of a sentence that is to be generated."""

from collections.abc import Iterable, Sequence
from typing import Self

from tokenizers import Tokenizer

from datamodules.documents import CorpusError
from datamodules.text.subword_text import SMALLEST, SubwordText

# PEGASUS's mask of a sentence, that of BART and LED, T5's first one
MASKS = ("<mask_1>", "<mask>", "<extra_id_0>")


class MaskedText(SubwordText):
    """Subwords with a mask, trained here or of a pretrained encoder-decoder such as PEGASUS, BART or T5.

    Args:
        tokenizer: of the `tokenizers` library, with the special symbols <pad> and </s>.

    Attributes:
        start, pad, stop: ids of the special symbols; without a <s> decoding starts with <pad>, as PEGASUS and T5 do.
        mask: id that stands for a sentence; None where there is none.
        opening: ids in front of a document.

    Raises:
        CorpusError: if it lacks <pad> or </s>.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        start, pad, stop = (tokenizer.token_to_id(symbol) for symbol in ("<s>", "<pad>", "</s>"))
        if pad is None or stop is None:
            missing = "<pad>" if pad is None else "</s>"
            raise CorpusError(f"the tokenizer has no {missing}; take one of PEGASUS's, BART's or T5's kind")
        self.pad, self.stop, self.start = pad, stop, pad if start is None else start
        self.opening = [] if start is None else [start]
        self.mask = next((found for name in MASKS if (found := tokenizer.token_to_id(name)) is not None), None)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        self.tokenizer = tokenizer

    @classmethod
    def build(cls, texts: Iterable[str], size: int) -> Self:
        """Byte-level BPE as in `SubwordText`, and <mask> as the last of at most `size` tokens.

        Raises:
            ValueError: if the size has no room for the bytes.
        """
        if size <= SMALLEST:
            raise ValueError(f"a vocabulary of {size}: it has at least {SMALLEST + 1}, one a byte, specials and a mask")
        tokenizer = SubwordText.build(texts, size - 1).tokenizer
        tokenizer.add_special_tokens(["<mask>"])
        return cls(tokenizer)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special symbols left out; <n>, which stands for a new line in PEGASUS, is a space."""
        return " ".join(super().decode(ids).replace("<n>", " ").split())
