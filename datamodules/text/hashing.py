"""Digests of texts; words of running text with their characters, and hashed features of each."""

import hashlib
import re
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

# letters and digits, apostrophes inside; or one sort of mark, repeated ("...", "--")
_WORD = re.compile(r"\w+(?:['’]\w+)*|([^\w\s])\1*")
AFFIXES = 4  # beginnings and endings of up to so many letters
FEATURES = 2 + 2 * AFFIXES
_LONGEST = 64  # letters that are looked at; an address of a thousand letters has the features of its beginning


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text, hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Words(NamedTuple):
    """The words of a text: their (start, end) characters and their features, `FEATURES` hashes each."""

    offsets: list[tuple[int, int]]
    features: list[tuple[int, ...]]


def hashed_words(text: str) -> Words:
    """Words and marks of a text; every visible character is part of one.

    The features of a word are 32-bit hashes of: the word in lower case; its first 1 to 4 letters; its last 1 to 4; its
    shape ("Xxx-9" for "Rev-2"). The same in every process and on every machine.
    """
    found = [(match.start(), match.end()) for match in _WORD.finditer(text)]
    return Words(found, [word_features(text[start : min(end, start + _LONGEST)]) for start, end in found])


@lru_cache(maxsize=65536)
def word_features(word: str) -> tuple[int, ...]:
    """Hashes of one word, `FEATURES` of them."""
    lower = word.lower()
    names = [f"w{lower}"]
    names += [f"p{size}{lower[:size]}" for size in range(1, AFFIXES + 1)]
    names += [f"s{size}{lower[-size:]}" for size in range(1, AFFIXES + 1)]
    names.append(f"h{_shape(word)}")
    return tuple(crc32(name.encode("utf-8", "surrogatepass")) for name in names)


def _shape(word: str) -> str:
    """Kinds of letters, no more than two of one kind in a row; marks stay."""
    kinds = ["X" if c.isupper() else "x" if c.isalpha() else "9" if c.isdigit() else c for c in word[:16]]
    return "".join(kind for i, kind in enumerate(kinds) if kinds[max(0, i - 2) : i] != [kind, kind])
