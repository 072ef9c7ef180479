"""Tokenizer with a mask symbol for gap sentences."""

from collections.abc import Iterable, Sequence
from typing import Self

from tokenizers import Tokenizer

from datamodules.documents import UserError
from datamodules.text.subword_tokenizer import SMALLEST, SubwordTokenizer

# mask symbols of PEGASUS (for sentences), of BART and LED, and the first one of T5
MASKS = ("<mask_1>", "<mask>", "<extra_id_0>")


class MaskingTokenizer(SubwordTokenizer):
    """Tokenizer with a mask symbol, trained on the corpus, or that of a pretrained PEGASUS, BART or T5.

    Args:
        tokenizer: tokenizer of the `tokenizers` library, with the special symbols <pad> and </s>.

    Attributes:
        start, pad, stop: ids of the special symbols; without a <s> decoding starts with <pad>, as PEGASUS and T5 do.
        mask: id of the symbol that replaces a sentence, or None.
        opening: ids before a document.

    Raises:
        UserError: if <pad> or </s> is missing.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        start, pad, stop = (tokenizer.token_to_id(symbol) for symbol in ("<s>", "<pad>", "</s>"))
        if pad is None or stop is None:
            missing = "<pad>" if pad is None else "</s>"
            raise UserError(f"the tokenizer has no {missing}; give one like that of PEGASUS, BART or T5")
        self.pad, self.stop, self.start = pad, stop, pad if start is None else start
        self.opening = [] if start is None else [start]
        masks = (tokenizer.token_to_id(name) for name in MASKS)
        self.mask = next((mask for mask in masks if mask is not None), None)
        self._use(tokenizer)

    @classmethod
    def build(cls, texts: Iterable[str], size: int) -> Self:
        """Train a byte-level BPE as in `SubwordTokenizer`, with <mask> as the last of at most `size` tokens.

        Raises:
            ValueError: if `size` is too small for all bytes.
        """
        if size <= SMALLEST:
            needed = f"it needs at least {SMALLEST + 1}, for bytes, special symbols and the mask"
            raise ValueError(f"a vocabulary of {size}: {needed}")
        tokenizer = SubwordTokenizer.build(texts, size - 1).backend
        tokenizer.add_special_tokens(["<mask>"])
        return cls(tokenizer)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids without special symbols; <n>, the line break of PEGASUS, becomes a space."""
        return " ".join(super().decode(ids).replace("<n>", " ").split())
