"""Digests of texts, and hashed features of words with their character offsets."""

import hashlib
import re
from functools import lru_cache
from pathlib import Path
from zlib import crc32

# Thai, Lao, Burmese, Khmer, kana and Chinese characters, which no space separates into words
_SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff"
_SPACELESS += "\U00020000-\U0003ffff"
# one of these; letters and digits with inner apostrophes; or a punctuation mark, possibly repeated ("...", "--")
_WORD = re.compile(rf"(?=\w)[{_SPACELESS}]|[^\W{_SPACELESS}]+(?:['’][^\W{_SPACELESS}]+)*|([^\w\s])\1*")
AFFIXES = 4  # maximum length of prefixes and suffixes
FEATURES = 2 + 2 * AFFIXES
_MAX_LETTERS = 64  # longer words, such as URLs, have the features of their beginning


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text, hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hashed_words(text: str) -> tuple[list[tuple[int, int]], list[tuple[int, ...]]]:
    """Return the (start, end) characters of the words and punctuation marks of a text, and `FEATURES` hashes of each.

    Every visible character is in one of them. A character of a script without spaces, such as Chinese, is a word. The
    features of a word, or of its first 64 letters, are 32-bit hashes of the word in lower case, its prefixes and
    suffixes of 1 to 4 letters, and its shape ("Xxx-9" for "Rev-2"), the same in all processes and on all machines.
    """
    offsets = [(match.start(), match.end()) for match in _WORD.finditer(text)]
    return offsets, [word_features(text[start : min(end, start + _MAX_LETTERS)]) for start, end in offsets]


@lru_cache(maxsize=65536)
def word_features(word: str) -> tuple[int, ...]:
    """Return the `FEATURES` hashes of a word, see `hashed_words`; trained models depend on their order and names."""
    lower = word.lower()
    names = [f"w{lower}"]  # the first letter of a name tells its kind: w(ord), p(refix), s(uffix), or h for the shape
    names += [f"p{size}{lower[:size]}" for size in range(1, AFFIXES + 1)]
    names += [f"s{size}{lower[-size:]}" for size in range(1, AFFIXES + 1)]
    names.append(f"h{_shape(word)}")
    return tuple(crc32(name.encode("utf-8", "surrogatepass")) for name in names)  # JSON may have lone surrogates


def _character_kind(character: str) -> str:
    if character.isupper():
        return "X"
    if character.isalpha():
        return "x"
    return "9" if character.isdigit() else character


def _shape(word: str) -> str:
    """Return the shape of the first 16 characters: X or x for letters, 9 for digits, runs shortened to two."""
    kinds = [_character_kind(character) for character in word[:16]]
    return "".join(kind for i, kind in enumerate(kinds) if kinds[max(0, i - 2) : i] != [kind, kind])  # not after two
