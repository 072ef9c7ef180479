"""The words of ROUGE: how text is cut, how words are stemmed, and words as integers."""

import itertools
import re
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

_LETTERS = bytes(ord(chr(byte).lower()) if byte < 128 and chr(byte).isalnum() else ord(" ") for byte in range(256))


def _latin(text: str) -> list[bytes]:
    """Runs of a-z and 0-9 in the lower-cased text; a table on bytes takes half the time of a regular expression."""
    # Lower-casing makes ASCII of some other letters, such as the Kelvin sign; the table does the rest.
    raw = text.encode() if text.isascii() else text.lower().encode("ascii", "replace")
    return raw.translate(_LETTERS).split()


def _any_script(text: str) -> list[str]:
    """Runs of letters and digits of any script in the lower-cased text."""
    return re.findall(r"[^\W_]+", text.lower())


TOKENIZERS = {"rouge": _latin, "unicode": _any_script}
STEMMERS = ("none", "porter", "perl")
WORDNET_FOLDERS = ("/usr/share/wordnet", "/usr/local/share/wordnet")

# A vocabulary that outgrows this is emptied between two documents: stemming again is cheaper than the memory.
MAX_WORDS = 1_000_000


class Vocabulary(dict):
    """Words to integers, filled as words are met: a word is stemmed once, and words with one stem share one integer.

    Args:
        split: text to its lower-cased words, in bytes where that is faster.
        stem: word to stem, or None. Words of three characters or fewer are kept as they are, as in ROUGE-1.5.5.
        description: stemmer and tokenizer as a score's signature names them.
    """

    def __init__(self, split: Callable[[str], list], stem: Callable[[str], str] | None, description: str) -> None:
        super().__init__()
        self.split, self.stem, self.description = split, stem, description
        self._numbers: dict[str, int] = {}
        self._fresh = itertools.count()

    def __missing__(self, word: str | bytes) -> int:
        letters = word if isinstance(word, str) else word.decode("ascii")
        stem = self.stem(letters) if self.stem and len(letters) > 3 else letters
        number = self._numbers.get(stem)
        if number is None:
            number = self._numbers[stem] = next(self._fresh)
        self[word] = number
        return number

    def encode(self, text: str) -> list[int]:
        """The integers of a text's words."""
        return list(map(self.__getitem__, self.split(text)))

    def bound(self) -> None:
        """Empties the vocabulary if it has outgrown `MAX_WORDS`; integers given before lose their meaning."""
        if len(self) > MAX_WORDS:
            self.clear()

    def clear(self) -> None:
        """Forgets all words and their integers."""
        super().clear()
        self._numbers.clear()


def vocabulary(stem: bool | str = True, tokenizer: str = "rouge", wordnet: str | None = None) -> Vocabulary:
    """The vocabulary of a way to cut and stem, one for the whole process.

    Args:
        stem: False or "none"; True or "porter" for NLTK's Porter stemmer, which `rouge-score` uses; "perl" for the
            stemmer of ROUGE-1.5.5 with WordNet's exception list.
        tokenizer: "rouge" cuts runs of a-z and 0-9, as ROUGE does, so that text in other scripts has no words at all;
            "unicode" takes letters and digits of every script.
        wordnet: folder with WordNet's `*.exc` files, for "perl"; by default Debian's is looked for. Without it
            irregular forms ("said", "children") keep their own stems: ROUGE-1.5.5 scores such texts some tenths of a
            point higher, and a warning says so.

    Raises:
        ValueError: for an unknown stemmer or tokenizer, or a WordNet folder without exception lists.
    """
    name = {True: "porter", False: "none"}.get(stem, stem)
    if name not in STEMMERS:
        raise ValueError(f"unknown ROUGE stemmer {stem!r}; take True, False or one of {', '.join(STEMMERS)}")
    if tokenizer not in TOKENIZERS:
        raise ValueError(f"unknown ROUGE tokenizer {tokenizer!r}; take one of {', '.join(TOKENIZERS)}")
    if wordnet is not None and name != "perl":
        raise ValueError(f"WordNet's exception list belongs to the stemmer 'perl', not to {name!r}")
    return _vocabulary(name, tokenizer, wordnet)


@cache
def _vocabulary(name: str, tokenizer: str, wordnet: str | None) -> Vocabulary:
    function = None
    if name == "porter":
        from nltk.stem.porter import PorterStemmer  # slow to import, and not needed without stemming

        function = PorterStemmer().stem
    elif name == "perl":
        exceptions = read_exceptions(wordnet)
        name = "perl+wordnet" if exceptions else "perl-wordnet"
        function = exceptions_first(exceptions)
    return Vocabulary(TOKENIZERS[tokenizer], function, f"stem:{name}|tok:{tokenizer}")


def exceptions_first(exceptions: dict[str, str]) -> Callable[[str], str]:
    """MorphStem of ROUGE-1.5.5: the exception list's base form, unstemmed, or else the Porter stem."""

    def stem(word: str) -> str:
        base = exceptions.get(word)
        return perl_porter(word) if base is None else base

    return stem


def read_exceptions(folder: str | None = None) -> dict[str, str]:
    """WordNet's irregular forms to their base forms; empty, with a warning, where no folder is given or found.

    A form listed under several parts of speech takes the base of the last: "best" and "better" are the adjective's
    "good", as ROUGE-1.5.5's scores show. No other words of the list have two bases but "testes".

    Raises:
        ValueError: if the given folder has no exception list.
    """
    for place in [folder] if folder else WORDNET_FOLDERS:
        exceptions = {}
        for part in ("adv", "adj", "noun", "verb"):
            path = Path(place) / f"{part}.exc"
            if path.is_file():
                lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
                exceptions.update((words[0], words[1]) for words in lines if len(words) > 1)
        if exceptions:
            return exceptions
    if folder:
        raise ValueError(f"{folder} has no WordNet exception list (noun.exc, verb.exc, ...)")
    warnings.warn(
        "no WordNet exception list found: the stems of irregular words differ from ROUGE-1.5.5's; install the "
        "Debian package wordnet-base or give the folder with noun.exc, verb.exc, ...",
        stacklevel=5,
    )
    return {}


_C, _V = "[^aeiou][^aeiouy]*", "[aeiouy][aeiou]*"
_HAS_VOWEL = re.compile(f"(?:{_C})?[aeiouy]").match
_MEASURE_1_UP = re.compile(f"(?:{_C})?{_V}{_C}").match
_MEASURE_1 = re.compile(f"(?:{_C})?{_V}{_C}(?:{_V})?$").match
_MEASURE_2_UP = re.compile(f"(?:{_C})?{_V}{_C}{_V}{_C}").match
_SHORT = re.compile(f"{_C}[aeiouy][^aeiouwxy]$").match
_DOUBLE = re.compile(r"([^aeiouylsz])\1$").search


def _rules(table: str, long_enough: Callable) -> tuple[Callable, dict[str, str], Callable]:
    """A search for the longest suffix of a table "suffix>replacement ...", the replacements, and their condition."""
    replace = dict(rule.split(">") for rule in table.split())
    longest_first = sorted(replace, key=len, reverse=True)
    return re.compile(f"(?:{'|'.join(longest_first)})$").search, replace, long_enough


_STEP_2 = _rules(
    "ational>ate tional>tion enci>ence anci>ance izer>ize bli>ble alli>al entli>ent eli>e ousli>ous ization>ize "
    "ation>ate ator>ate alism>al iveness>ive fulness>ful ousness>ous aliti>al iviti>ive biliti>ble logi>log",
    _MEASURE_1_UP,
)
_STEP_3 = _rules("icate>ic ative> alize>al iciti>ic ical>ic ful> ness>", _MEASURE_1_UP)
_STEP_4 = _rules("al> ance> ence> er> ic> able> ible> ant> ement> ou> ism> ate> iti> ous> ive> ize>", _MEASURE_2_UP)


def perl_porter(word: str) -> str:
    """Porter stem as ROUGE-1.5.5 computes it, of a lower-case word of three letters or more.

    Porter 1980 with the two departures of its author's later versions (-bli, -logi), and with one of ROUGE's own: in
    step 4, -ment and -ent are tried after the other suffixes rather than in their place, so that several can go.
    NLTK's stemmer, which `rouge-score` uses, has further rules (dying -> die, -fulli, -ies in short words).
    """
    if len(word) < 3:
        return word
    if starts_with_y := word[0] == "y":
        word = "Y" + word[1:]  # an initial y is a consonant
    word = _step_1(word)
    for search, replace, long_enough in (_STEP_2, _STEP_3, _STEP_4):
        if (found := search(word)) and long_enough(word[: found.start()]):
            word = word[: found.start()] + replace[found.group()]
    if word.endswith("ment") and _MEASURE_2_UP(word[:-4]):
        word = word[:-4]
    if word.endswith("ent"):
        word = word[:-3] if _MEASURE_2_UP(word[:-3]) else word
    elif word.endswith(("sion", "tion")) and _MEASURE_2_UP(word[:-3]):
        word = word[:-3]
    if word.endswith("e"):
        stem = word[:-1]
        if _MEASURE_2_UP(stem) or (_MEASURE_1(stem) and not _SHORT(stem)):
            word = stem
    if word.endswith("ll") and _MEASURE_2_UP(word):
        word = word[:-1]
    return "y" + word[1:] if starts_with_y else word


def _step_1(word: str) -> str:
    """Plurals, -ed, -ing, and a final y."""
    if word.endswith(("sses", "ies")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    if word.endswith("eed"):
        word = word[:-1] if _MEASURE_1_UP(word[:-3]) else word
    elif word.endswith(("ed", "ing")):
        stem = word[:-2] if word.endswith("ed") else word[:-3]
        if _HAS_VOWEL(stem):
            if stem.endswith(("at", "bl", "iz")):
                word = stem + "e"
            elif _DOUBLE(stem):
                word = stem[:-1]
            else:
                word = stem + "e" if _SHORT(stem) else stem
    if word.endswith("y") and _HAS_VOWEL(word[:-1]):
        word = word[:-1] + "i"
    return word
