"""Word tokenization and detokenization."""

import re
from collections.abc import Collection, Sequence
from typing import Any, Literal

WordTokenization = Literal["words", "whitespace"]
SENTENCE_ENDS = (".", "!", "?")
CLOSING_MARKS = frozenset("”」』）》)]") | {"''"}  # belong to the sentence whose end mark they follow

# A word keeps inner apostrophes, hyphens, dots, slashes and underscores (don't, re-use, torch.nn, 10/30/01, 9:00);
# every other visible character is a separate token.
_WORD = re.compile(r"\w+(?:['’.,:/@&-]\w+)*|[^\w\s]")
NO_SPACE_BEFORE = frozenset(".,;:!?)]}%’”")
NO_SPACE_AFTER = frozenset("([{$#“‘")


def tokenize(text: str, tokenizer: WordTokenization = "words", lowercase: bool = True) -> list[str]:
    """Split a text into tokens: `words` separates words from punctuation, `whitespace` expects spaces between them."""
    if lowercase:
        text = text.lower()
    return text.split() if tokenizer == "whitespace" else _WORD.findall(text)


def detokenize(
    tokens: Sequence[str], tokenizer: WordTokenization = "words",
    no_space_before: Collection[str] = NO_SPACE_BEFORE, no_space_after: Collection[str] = NO_SPACE_AFTER,
    unspaced: Any = None,
) -> str:  # fmt: skip
    """Join tokens by spaces; with `words`, without spaces before or after punctuation as in usual text.

    Args:
        tokenizer: as in `tokenize`.
        no_space_before, no_space_after: marks without a space before or after them.
        unspaced: compiled pattern of characters without spaces around them, such as Chinese ones.
    """
    if tokenizer == "whitespace":
        return " ".join(tokens)
    pieces: list[str] = []  # tokens and spaces
    open_quotes: set[str] = set()
    no_space = True  # whether no space may follow the previous token
    for token in tokens:
        is_quote = token in {'"', "`", "'"}  # the same mark opens and closes a quote
        is_closing = is_quote and token in open_quotes  # the second of a pair
        # whether the token begins, or the text so far ends, with an `unspaced` character
        is_unspaced = unspaced and pieces and (unspaced.match(token) or unspaced.match(pieces[-1][-1]))
        if pieces and not (no_space or is_unspaced or is_closing or token in no_space_before):
            pieces.append(" ")
        pieces.append(token)
        if is_quote:
            open_quotes ^= {token}  # adds an opening mark, removes a closing one
        no_space = token in no_space_after or (is_quote and not is_closing)
    return "".join(pieces)
